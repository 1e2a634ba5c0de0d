{{/* Names, labels, and what follows from the values. All of these take the context of one set: see gpu-exporter.sets. */}}

{{- define "gpu-exporter.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* 52 characters without a dot: the name of a set is added to it, and names of Services have 63 at most, and none. */}}
{{- define "gpu-exporter.fullname" -}}
{{- $name := include "gpu-exporter.name" . }}
{{- $joined := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full := .Values.fullnameOverride | default $joined | replace "." "-" | trunc 52 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
  {{- fail (printf "%s: names of Services begin with a letter: set fullnameOverride" $full) }}
{{- end }}
{{- $full }}
{{- end }}

{{- define "gpu-exporter.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/*
The DaemonSets, by name, as JSON of their values: one with the name "" unless `daemonSets` has some, whose keys are laid
over the values. Templates make a context of each by `set` on a shallow copy: `merge` would fill in what is false or empty.
*/}}
{{- define "gpu-exporter.sets" -}}
{{- $sets := dict }}
{{- range $name, $changes := .Values.daemonSets }}
  {{- $_ := set $sets $name (mergeOverwrite (deepCopy $.Values) (deepCopy ($changes | default dict))) }}
{{- end }}
{{- if not $sets }}{{ $_ := set $sets "" .Values }}{{ end }}
{{- toJson $sets }}
{{- end }}

{{/* `set` is the name of the set that a context is of. */}}
{{- define "gpu-exporter.setname" -}}
{{- include "gpu-exporter.fullname" . }}{{ with .set }}-{{ . }}{{ end }}
{{- end }}

{{- define "gpu-exporter.component" -}}
exporter{{ with .set }}-{{ . }}{{ end }}
{{- end }}

{{/* Of values, as text: YAML takes some names for numbers. */}}
{{- define "gpu-exporter.matchLabels" -}}
{{- dict "app.kubernetes.io/name" (include "gpu-exporter.name" .) "app.kubernetes.io/instance" .Release.Name | toYaml }}
{{- end }}

{{- define "gpu-exporter.selectorLabels" -}}
{{ include "gpu-exporter.matchLabels" . }}
app.kubernetes.io/component: {{ include "gpu-exporter.component" . }}
{{- end }}

{{/*
Labels of an object: takes a list of its context and of maps of more labels. Later ones win over those before, and what
selectors look for over all, so that each is there once.
*/}}
{{- define "gpu-exporter.labels" -}}
{{- $context := first . }}
{{- with $context }}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_.") }}
{{- $_ := set $labels "app.kubernetes.io/version" (.Values.image.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_.") }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $labels "app.kubernetes.io/part-of" "gpu-exporter" }}
{{- range prepend (rest $) .Values.commonLabels }}
  {{- range $name, $value := . }}{{ $_ := set $labels $name $value }}{{ end }}
{{- end }}
{{- range $name, $value := include "gpu-exporter.matchLabels" . | fromYaml }}{{ $_ := set $labels $name $value }}{{ end }}
{{- toYaml $labels }}
{{- end }}
{{- end }}

{{- define "gpu-exporter.image" -}}
{{- with .Values.image -}}
{{- $name := .repository }}
{{- if .registry }}{{ $name = printf "%s/%s" .registry .repository }}{{ end }}
{{- if .digest }}{{ printf "%s@%s" $name .digest }}
{{- else }}{{ printf "%s:%s" $name (.tag | default $.Chart.AppVersion) }}{{ end }}
{{- end }}
{{- end }}

{{- define "gpu-exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gpu-exporter.fullname" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{/* The flags below are "true" or "", so that they work in `if`. */}}

{{- define "gpu-exporter.reads" -}}
{{- $providers := .values.providers }}
{{- if and (not .values.simulated.enabled) (or (not $providers) (has .provider $providers)) }}true{{ end }}
{{- end }}

{{/* The kubelet's socket and its directory are root's, and capabilities are lost by users other than root. */}}
{{- define "gpu-exporter.needsRoot" -}}
{{- if and .Values.attribution.enabled (or .Values.attribution.kubelet.enabled .Values.attribution.slurmEnvironment) }}true{{ end }}
{{- end }}

{{- define "gpu-exporter.user" -}}
{{- if hasKey (.Values.securityContext | default dict) "runAsUser" }}{{ .Values.securityContext.runAsUser | int64 }}
{{- else if hasKey (.Values.podSecurityContext | default dict) "runAsUser" }}{{ .Values.podSecurityContext.runAsUser | int64 }}
{{- else if include "gpu-exporter.needsRoot" . }}0
{{- else }}65532{{ end }}
{{- end }}

{{- define "gpu-exporter.group" -}}
{{- if hasKey (.Values.securityContext | default dict) "runAsGroup" }}{{ .Values.securityContext.runAsGroup | int64 }}
{{- else if hasKey (.Values.podSecurityContext | default dict) "runAsGroup" }}{{ .Values.podSecurityContext.runAsGroup | int64 }}
{{- else }}{{ include "gpu-exporter.user" . }}{{ end }}
{{- end }}

{{- define "gpu-exporter.asksApiServer" -}}
{{- if and .Values.attribution.enabled .Values.attribution.apiServer }}true{{ end }}
{{- end }}

{{/* Whether the whole web configuration is somebody else's, or made here, or there is none. */}}
{{- define "gpu-exporter.webConfig" -}}
{{- if .Values.webConfig.existingSecret }}existing
{{- else if or .Values.tls.enabled .Values.basicAuth.users }}made{{ end }}
{{- end }}

{{- define "gpu-exporter.https" -}}
{{- if ternary .Values.webConfig.tls .Values.tls.enabled (not (empty .Values.webConfig.existingSecret)) }}true{{ end }}
{{- end }}

{{- define "gpu-exporter.login" -}}
{{- if ternary .Values.webConfig.login (not (empty .Values.basicAuth.users)) (not (empty .Values.webConfig.existingSecret)) }}true{{ end }}
{{- end }}

{{- define "gpu-exporter.clientCertificates" -}}
{{- if ternary .Values.webConfig.clientCertificates (and .Values.tls.enabled .Values.tls.clientAuth.enabled) (not (empty .Values.webConfig.existingSecret)) }}true{{ end }}
{{- end }}

{{- define "gpu-exporter.scheme" -}}
{{- ternary "https" "http" (eq (include "gpu-exporter.https" .) "true") }}
{{- end }}

{{- define "gpu-exporter.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "gpu-exporter.fullname" .)) }}
{{- end }}

{{- define "gpu-exporter.webSecret" -}}
{{- .Values.webConfig.existingSecret | default (printf "%s-web" (include "gpu-exporter.fullname" .)) }}
{{- end }}

{{- define "gpu-exporter.configMap" -}}
{{- .Values.existingConfigMap | default (include "gpu-exporter.setname" .) }}
{{- end }}

{{/*
Of this release and set alone: a second exporter in the same directory would have no journal. No namespace has a dot in
its name, so that team.a-gpus is another than team-a.gpus.
*/}}
{{- define "gpu-exporter.journalName" -}}
{{ include "gpu-exporter.namespace" . }}.{{ include "gpu-exporter.setname" . }}
{{- end }}

{{/* The configuration file, as YAML: what `config` says, with what follows from other values laid over it. */}}
{{- define "gpu-exporter.config" -}}
{{- $attribution := dict "enabled" .Values.attribution.enabled }}
{{- with .Values.attribution }}
  {{- if eq .processes "hostProc" }}{{ $_ := set $attribution "proc" "/host/proc" }}{{ end }}
  {{- $_ := set $attribution "kubelet_socket" (ternary "/host/pod-resources/kubelet.sock" nil .kubelet.enabled) }}
  {{- $_ := set $attribution "pod_logs" (ternary "/host/var/log/pods" nil .podLogs.enabled) }}
  {{- $_ := set $attribution "job_files" (ternary "/host/job-files" nil .jobFiles.enabled) }}
  {{- $_ := set $attribution "api_server" .apiServer }}
  {{- $_ := set $attribution "slurm_environment" .slurmEnvironment }}
{{- end }}
{{- $ours := dict "attribution" $attribution "providers" (.Values.providers | default list) }}
{{- if .Values.simulated.enabled }}
  {{- if .Values.simulated.scenario }}
    {{- $_ := set $ours "simulate" "scenario.yaml" }}
  {{- else }}
    {{- $_ := set $ours "providers" (list "simulated") }}
  {{- end }}
{{- end }}
{{- mergeOverwrite (deepCopy (.Values.config | default dict)) $ours | toYaml }}
{{- end }}

{{/* The file for --web.config.file that is made of `tls` and `basicAuth`. */}}
{{- define "gpu-exporter.webConfigFile" -}}
{{- $file := dict }}
{{- with .Values.tls }}{{ if .enabled }}
  {{- $tls := dict "cert_file" "/etc/gpu-exporter/tls/tls.crt" "key_file" "/etc/gpu-exporter/tls/tls.key" "min_version" .minVersion }}
  {{- if .clientAuth.enabled }}
    {{- $_ := set $tls "client_ca_file" (printf "/etc/gpu-exporter/%s/ca.crt" (ternary "client-ca" "tls" (not (empty .clientAuth.caSecret)))) }}
    {{- $_ := set $tls "client_auth_type" "RequireAndVerifyClientCert" }}
    {{- with .clientAuth.allowedSans }}{{ $_ := set $tls "client_allowed_sans" . }}{{ end }}
  {{- end }}
  {{- $_ := set $file "tls_server_config" $tls }}
{{- end }}{{ end }}
{{- with .Values.basicAuth.users }}{{ $_ := set $file "basic_auth_users" . }}{{ end }}
{{- toYaml $file }}
{{- end }}

{{/* Where an API is in versions, the newest that the cluster has. */}}
{{- define "gpu-exporter.resourceApi" -}}
{{- if .Values.dra.apiVersion }}{{ .Values.dra.apiVersion }}
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1" }}resource.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta2" }}resource.k8s.io/v1beta2
{{- else }}resource.k8s.io/v1beta1{{ end }}
{{- end }}

{{/*
A target is named after its node, as the totals are the node's and go on in the next pod. What names the pod would begin
series anew with each of them.
*/}}
{{- define "gpu-exporter.relabelings" -}}
- action: replace
  sourceLabels: [__meta_kubernetes_pod_node_name]
  targetLabel: instance
- action: labeldrop
  regex: pod|container|namespace|service|endpoint
{{- end }}

{{/* Of a duration; 0 where none is given. */}}
{{- define "gpu-exporter.milliseconds" -}}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" (. | default "") -1 }}
  {{- $unit := get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000) (regexFind "[a-z]+$" .) }}
  {{- $sum = add $sum (mul $unit (regexFind "^[0-9]+" . | int64)) }}
{{- end }}
{{- $sum }}
{{- end }}
