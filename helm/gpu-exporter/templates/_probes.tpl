{{/* Secret with what a probe shows the server; "" where the kubelet can ask by itself, or nobody can. */}}
{{- define "gpu-exporter.probeSecret" -}}
{{- if or (include "gpu-exporter.login" .) (include "gpu-exporter.clientCertificates" .) }}{{ .Values.probes.existingSecret | default "" }}{{ end }}
{{- end }}

{{/*
One probe: takes the context of a set with `probe` and `path`. The kubelet asks over HTTP where it is let in. With login
or client certificates a process in the container asks, with what probes.existingSecret has; without that Secret it is
seen only whether the port is open. A password that has changed in one place and not yet in the other is no reason to end
a process that answers, so only readiness takes a refusal for a failure.
*/}}
{{- define "gpu-exporter.probe" -}}
{{- if include "gpu-exporter.probeSecret" . -}}
exec:
  command:
    - python3
    - -c
    - {{ .Files.Get "files/probe.py" | toJson }}
    - {{ include "gpu-exporter.scheme" . }}://127.0.0.1:{{ .Values.port | int64 }}{{ .path }}
    - --credentials=/etc/gpu-exporter/probe
    {{- if ne .path "/-/ready" }}
    - --refusal-is-fine
    {{- end }}
{{- else if or (include "gpu-exporter.login" .) (include "gpu-exporter.clientCertificates" .) -}}
tcpSocket:
  port: metrics
{{- else -}}
httpGet:
  path: {{ .path | quote }}
  port: metrics
  scheme: {{ include "gpu-exporter.scheme" . | upper }}
{{- end }}
{{- with omit .probe "enabled" }}
{{ toYaml . }}
{{- end }}
{{- end }}
