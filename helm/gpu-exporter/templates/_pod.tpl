{{/* The pod of one set. */}}

{{- define "gpu-exporter.arguments" -}}
- serve
- --config.file=/etc/gpu-exporter/config/gpu-exporter.yaml
- --web.listen-address=:{{ .Values.port | int64 }}
- --web.telemetry-path={{ .Values.telemetryPath }}
{{- if include "gpu-exporter.webConfig" . }}
- --web.config.file=/etc/gpu-exporter/web/{{ ternary .Values.webConfig.key "web-config.yml" (not (empty .Values.webConfig.existingSecret)) }}
{{- end }}
{{- if ne .Values.journal.storage "none" }}
- --journal.directory=/run/gpu-exporter
- --journal.state-directory=/var/lib/gpu-exporter
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What extraEnv names again is its own. */}}
{{- define "gpu-exporter.environment" -}}
{{- $own := list (dict "name" "NODE_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "spec.nodeName"))) }}
{{- if include "gpu-exporter.reads" (dict "values" .Values "provider" "nvidia") }}
  {{- $own = append $own (dict "name" "NVIDIA_VISIBLE_DEVICES" "value" .Values.nvidia.visibleDevices) }}
  {{- $own = append $own (dict "name" "NVIDIA_DRIVER_CAPABILITIES" "value" .Values.nvidia.driverCapabilities) }}
{{- end }}
{{- $all := .Values.extraEnv | default list }}
{{- $named := list }}
{{- range $all }}{{ $named = append $named .name }}{{ end }}
{{- range reverse $own }}
  {{- if not (has .name $named) }}{{ $all = prepend $all . }}{{ end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{- define "gpu-exporter.securityContext" -}}
{{- $user := include "gpu-exporter.user" . | int64 }}
{{- $own := dict "runAsUser" $user "runAsGroup" (include "gpu-exporter.group" . | int64) "runAsNonRoot" (ne $user 0) }}
{{- $added := list }}
{{- if and .Values.attribution.enabled .Values.attribution.slurmEnvironment }}
  {{- $added = list "SYS_PTRACE" "DAC_READ_SEARCH" }}
{{- end }}
{{- $_ := set $own "capabilities" (ternary (dict "drop" (list "ALL")) (dict "drop" (list "ALL") "add" $added) (empty $added)) }}
{{- $context := mergeOverwrite (deepCopy (.Values.securityContext | default dict)) $own }}
{{- with (.Values.securityContext | default dict).capabilities }}{{ $_ := set $context "capabilities" . }}{{ end }}
{{- if .Values.privileged }}
  {{- $_ := set $context "privileged" true }}
  {{- $_ := set $context "allowPrivilegeEscalation" true }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{- define "gpu-exporter.podSecurityContext" -}}
{{- $own := dict "fsGroup" (include "gpu-exporter.group" . | int64) }}
{{- mergeOverwrite $own (deepCopy (.Values.podSecurityContext | default dict)) | toYaml }}
{{- end }}

{{- define "gpu-exporter.pod" -}}
{{- $mounts := include "gpu-exporter.mounts" . | fromYamlArray }}
serviceAccountName: {{ include "gpu-exporter.serviceAccountName" . | quote }}
automountServiceAccountToken: {{ eq (include "gpu-exporter.asksApiServer" .) "true" }}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- if and .Values.attribution.enabled (eq .Values.attribution.processes "hostPID") }}
hostPID: true
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
dnsPolicy: {{ .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "ClusterFirst" .Values.hostNetwork) }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds | int64 }}
securityContext:
  {{- include "gpu-exporter.podSecurityContext" . | nindent 2 }}
{{- if or (eq .Values.journal.storage "hostPath") .Values.extraInitContainers }}
initContainers:
  {{- if eq .Values.journal.storage "hostPath" }}
  # The kubelet makes directories of hostPath volumes for root, and no fsGroup counts there. Their owner is set at each
  # start, so that another user may be chosen later.
  - name: own-journal
    image: {{ include "gpu-exporter.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command:
      - chown
      - --recursive
      - --no-dereference
      - {{ include "gpu-exporter.user" . }}:{{ include "gpu-exporter.group" . }}
      - /run/gpu-exporter
      - /var/lib/gpu-exporter
    securityContext:
      runAsUser: 0
      runAsGroup: 0
      runAsNonRoot: false
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
        add: [CHOWN]
    {{- with .Values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: journal, mountPath: /run/gpu-exporter}
      - {name: state, mountPath: /var/lib/gpu-exporter}
  {{- end }}
  {{- with .Values.extraInitContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - name: gpu-exporter
    image: {{ include "gpu-exporter.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [gpu-exporter]
    args:
      {{- include "gpu-exporter.arguments" . | nindent 6 }}
    env:
      {{- include "gpu-exporter.environment" . | nindent 6 }}
    {{- with .Values.extraEnvFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: metrics
        containerPort: {{ .Values.port | int64 }}
        protocol: TCP
        {{- with .Values.hostPort }}
        hostPort: {{ . | int64 }}
        {{- end }}
    {{- range $name, $path := dict "startupProbe" "/-/healthy" "livenessProbe" "/-/healthy" "readinessProbe" "/-/ready" }}
    {{- $probe := get $.Values.probes (trimSuffix "Probe" $name) }}
    {{- if $probe.enabled }}
    {{ $name }}:
      {{- include "gpu-exporter.probe" (set (set (omit $ "probe") "probe" $probe) "path" $path) | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- if or .Values.resources .Values.dra.enabled }}
    resources:
      {{- $claims := ternary (dict "claims" (list (dict "name" "gpus"))) dict .Values.dra.enabled }}
      {{- mergeOverwrite (deepCopy (.Values.resources | default dict)) $claims | toYaml | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "gpu-exporter.securityContext" . | nindent 6 }}
    volumeMounts:
      {{- range $mounts }}
      - {{ toJson .mount }}
      {{- end }}
      {{- with .Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with .Values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  {{- range $mounts }}
  - {{ merge (dict "name" .mount.name) .source | toJson }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if .Values.dra.enabled }}
resourceClaims:
  - name: gpus
    resourceClaimTemplateName: {{ include "gpu-exporter.setname" . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
