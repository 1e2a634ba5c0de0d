{{/* What is likely not meant, one line each, of one set. What can never be right is refused by values.schema.json. */}}
{{- define "gpu-exporter.warnings" -}}
{{- $user := include "gpu-exporter.user" . | int }}
{{- $https := include "gpu-exporter.https" . }}
{{- $guarded := or (include "gpu-exporter.login" .) (include "gpu-exporter.clientCertificates" .) }}
{{- $amd := include "gpu-exporter.reads" (dict "values" .Values "provider" "amd") }}
{{- with .Values }}
{{- if and (include "gpu-exporter.needsRoot" $) (ne $user 0) }}
securityContext.runAsUser is {{ $user }}, but attribution.kubelet and attribution.slurmEnvironment need user 0: these sources will be down.
{{- end }}
{{- if and .amd.hostDevices (not .privileged) }}
amd.hostDevices mounts /dev/dri, but without privileged the device rules of the container forbid to open what is there.
{{- end }}
{{- if and .amd.hostDevices (not $amd) }}
amd.hostDevices has no effect: the provider amd is not opened.
{{- end }}
{{- if and .privileged (not .amd.hostDevices) $amd .providers (not (has "nvidia" .providers)) }}
privileged is set without amd.hostDevices: what is in /sys needs neither.
{{- end }}
{{- if and .runtimeClassName .providers (not (has "nvidia" .providers)) }}
runtimeClassName is {{ .runtimeClassName }}, but the provider nvidia is not opened.
{{- end }}
{{- if and .runtimeClassName (not .providers) (le (len (.nodeSelector | default dict)) 1) }}
runtimeClassName is {{ .runtimeClassName }} on all nodes: where the runtime does not know it, pods do not start. Set nodeSelector, or use daemonSets.
{{- end }}
{{- if and (has "nvidia" .providers) (not .runtimeClassName) (not .dra.enabled) (not .privileged) }}
The provider nvidia is asked for without runtimeClassName: it works only where NVIDIA's is the default runtime.
{{- end }}
{{- if and .attribution.enabled .attribution.podLogs.enabled (eq .attribution.processes "none") (not .attribution.kubelet.enabled) }}
attribution.podLogs names pods that nobody finds: set attribution.processes.
{{- end }}
{{- if and .attribution.enabled (ne .attribution.processes "none") (not .attribution.podLogs.enabled) (not .attribution.apiServer) }}
attribution.processes finds pods by their uid: their names take attribution.podLogs or attribution.apiServer.
{{- end }}
{{- if and (include "gpu-exporter.asksApiServer" $) (not .serviceAccount.create) (not .serviceAccount.name) .rbac.create }}
attribution.apiServer lets every pod with the default service account of this namespace list all pods: set serviceAccount.
{{- end }}
{{- if and (include "gpu-exporter.asksApiServer" $) (not .rbac.create) }}
attribution.apiServer needs a role that lists pods and resourceslices and gets resourceclaims; rbac.create is false.
{{- end }}
{{- if eq .journal.storage "none" }}
journal.storage is none: totals of energy begin at 0 at each start.
{{- else if eq .journal.storage "emptyDir" }}
journal.storage is emptyDir: totals of energy begin at 0 in each new pod.
{{- end }}
{{- if and (include "gpu-exporter.login" $) (not $https) }}
Passwords go over the network in the clear: set tls.
{{- end }}
{{- if and $guarded (not .probes.existingSecret) }}
The server asks for login or client certificates, so probes see only whether the port is open: set probes.existingSecret.
{{- end }}
{{- if and .probes.existingSecret (not $guarded) }}
probes.existingSecret has no effect: the server asks for no login.
{{- end }}
{{- range $name, $monitor := dict "serviceMonitor" .serviceMonitor "podMonitor" .podMonitor }}
{{- if $monitor.enabled }}
{{- if and $https (not $monitor.tlsConfig) (not $.Values.tls.certManager.enabled) }}
{{ $name }}.tlsConfig is empty: Prometheus will not trust the certificate unless its authority is public and it names the pod's address.
{{- end }}
{{- if and $https (not $monitor.tlsConfig) $.Values.tls.certManager.enabled (not (has $monitor.namespace (list "" (include "gpu-exporter.namespace" $)))) }}
{{ $name }}.namespace is not that of the Secret with the authority of the certificate, so Prometheus does not find it: set {{ $name }}.tlsConfig.
{{- end }}
{{- if and $monitor.interval (gt (include "gpu-exporter.milliseconds" $monitor.scrapeTimeout | int64) (include "gpu-exporter.milliseconds" $monitor.interval | int64)) }}
{{ $name }}.scrapeTimeout is longer than the interval: the operator passes over a monitor like that.
{{- end }}
{{- if and (not $https) $monitor.tlsConfig }}
{{ $name }}.tlsConfig has no effect: plain HTTP is served.
{{- end }}
{{- if and (include "gpu-exporter.login" $) (not $monitor.basicAuth) }}
{{ $name }}.basicAuth is empty, and the server asks for a login: scrapes will get 401.
{{- end }}
{{- end }}
{{- end }}
{{- if and .networkPolicy.enabled .hostNetwork }}
networkPolicy has no effect on pods with hostNetwork.
{{- end }}
{{- if and .existingConfigMap (or .providers (ne (toJson (.config | default dict)) (toJson (dict "workers" (dict "max_memory_bytes" 268435456))))) }}
existingConfigMap is used as it is: config and providers have no effect.
{{- end }}
{{- range $argument := .extraArgs }}
{{- $option := first (splitList "=" $argument) }}
{{- if has $option (list "--config.file" "--provider" "--simulate" "--web.listen-address" "--web.telemetry-path" "--web.config.file" "--web.systemd-socket" "--journal.directory" "--journal.state-directory") }}
extraArgs has {{ $option }}, which follows from other values: volumes, probes, the Service and monitors stay as those say.
{{- end }}
{{- end }}
{{- if .dra.enabled }}
dra needs the label resource.kubernetes.io/admin-access=true on the namespace.
{{- end }}
{{- end }}
{{- end }}

{{/* The same of the release. */}}
{{- define "gpu-exporter.releaseWarnings" -}}
{{- if and .Values.dashboards.enabled (not (.Files.Glob "files/dashboards/*.json")) }}
dashboards.enabled has no effect: this chart has no dashboards.
{{- end }}
{{- if gt (len (.Values.daemonSets | default dict)) 1 }}
{{- if or .Values.hostNetwork .Values.hostPort }}
All of daemonSets are of the same port of the node (hostNetwork, hostPort): where two of them meet, one does not start.
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not (has .Values.serviceMonitor.jobLabel (list nil "" "app.kubernetes.io/component"))) }}
serviceMonitor.jobLabel may make all of daemonSets the same job: where two of them meet on a node, series of the one are those of the other.
{{- end }}
{{- end }}
{{- $taken := list }}
{{- range $set, $values := include "gpu-exporter.sets" . | fromJson }}
{{- $providers := $values.providers | default (list "nvidia" "amd" "drm") }}
{{- range $providers }}
{{- if has . $taken }}
More than one of daemonSets opens the provider {{ . }}: they must not meet on a node, or its GPUs are counted twice.
{{- else if or (and (eq . "amd") (has "drm" $taken)) (and (eq . "drm") (has "amd" $taken)) }}
One of daemonSets opens the provider amd and another drm, which sees the same GPUs: they must not meet on a node, or those are counted twice.
{{- end }}
{{- end }}
{{- $taken = concat $taken $providers }}
{{- end }}
{{- end }}
