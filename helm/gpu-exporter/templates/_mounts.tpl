{{/* Mount path, volume and source of all that comes from the values, as a YAML list. */}}
{{- define "gpu-exporter.mounts" -}}
- mount: {name: config, mountPath: /etc/gpu-exporter/config, readOnly: true}
  source:
    configMap:
      name: {{ include "gpu-exporter.configMap" . | quote }}
{{- if include "gpu-exporter.webConfig" . }}
- mount: {name: web, mountPath: /etc/gpu-exporter/web, readOnly: true}
  source:
    secret:
      secretName: {{ include "gpu-exporter.webSecret" . | quote }}
      defaultMode: 0440
{{- end }}
{{- if .Values.tls.enabled }}
- mount: {name: tls, mountPath: /etc/gpu-exporter/tls, readOnly: true}
  source:
    secret:
      secretName: {{ include "gpu-exporter.tlsSecret" . | quote }}
      defaultMode: 0440
{{- if and .Values.tls.clientAuth.enabled .Values.tls.clientAuth.caSecret }}
- mount: {name: client-ca, mountPath: /etc/gpu-exporter/client-ca, readOnly: true}
  source:
    secret:
      secretName: {{ .Values.tls.clientAuth.caSecret | quote }}
      defaultMode: 0440
      items:
        - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end }}
{{- if include "gpu-exporter.probeSecret" . }}
- mount: {name: probe, mountPath: /etc/gpu-exporter/probe, readOnly: true}
  source:
    secret:
      secretName: {{ include "gpu-exporter.probeSecret" . | quote }}
      defaultMode: 0440
{{- end }}
{{- with .Values.journal }}
{{- if eq .storage "hostPath" }}
- mount: {name: journal, mountPath: /run/gpu-exporter}
  source:
    hostPath:
      path: {{ printf "%s/%s" .hostPath.live (include "gpu-exporter.journalName" $) | quote }}
      type: DirectoryOrCreate
- mount: {name: state, mountPath: /var/lib/gpu-exporter}
  source:
    hostPath:
      path: {{ printf "%s/%s" .hostPath.state (include "gpu-exporter.journalName" $) | quote }}
      type: DirectoryOrCreate
{{- else if eq .storage "emptyDir" }}
- mount: {name: journal, mountPath: /run/gpu-exporter}
  source:
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
- mount: {name: state, mountPath: /var/lib/gpu-exporter}
  source:
    emptyDir: {sizeLimit: 64Mi}
{{- end }}
{{- end }}
{{- if and .Values.amd.hostDevices (include "gpu-exporter.reads" (dict "values" .Values "provider" "amd")) }}
- mount: {name: dri, mountPath: /dev/dri}
  source:
    hostPath: {path: /dev/dri, type: Directory}
{{- end }}
{{- with .Values.attribution }}{{- if .enabled }}
{{- if eq .processes "hostProc" }}
- mount: {name: host-proc, mountPath: /host/proc, readOnly: true}
  source:
    hostPath: {path: /proc, type: Directory}
- mount: {name: host-passwd, mountPath: /host/etc/passwd, readOnly: true}
  source:
    hostPath: {path: /etc/passwd, type: File}
{{- end }}
{{- if .kubelet.enabled }}
- mount: {name: pod-resources, mountPath: /host/pod-resources, readOnly: true}
  source:
    hostPath: {path: {{ .kubelet.hostPath | quote }}, type: Directory}
{{- end }}
{{- if .podLogs.enabled }}
- mount: {name: pod-logs, mountPath: /host/var/log/pods, readOnly: true}
  source:
    hostPath: {path: {{ .podLogs.hostPath | quote }}, type: Directory}
- mount: {name: container-logs, mountPath: /host/var/log/containers, readOnly: true}
  source:
    hostPath: {path: {{ printf "%s/containers" (dir .podLogs.hostPath) | quote }}, type: Directory}
{{- end }}
{{- if .jobFiles.enabled }}
- mount: {name: job-files, mountPath: /host/job-files, readOnly: true}
  source:
    hostPath: {path: {{ .jobFiles.hostPath | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- end }}{{- end }}
{{- end }}
