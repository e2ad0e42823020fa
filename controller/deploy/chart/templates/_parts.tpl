{{/* Labels of an object: the name of its program, if it is of one, and Helm's own. */}}
{{- define "sesame.labels" -}}
app.kubernetes.io/part-of: sesame
{{- with .name }}
app.kubernetes.io/name: {{ . }}
{{- end }}
app.kubernetes.io/instance: {{ .release.Release.Name }}
app.kubernetes.io/managed-by: {{ .release.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .release.Chart.Name .release.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sesame.controllerLabels" -}}
{{ include "sesame.labels" (dict "name" "sesame-controller" "release" .) }}
{{- end }}

{{- define "sesame.agentLabels" -}}
{{ include "sesame.labels" (dict "name" "sesame-agent" "release" .) }}
{{- end }}

{{- define "sesame.envoyLabels" -}}
{{ include "sesame.labels" (dict "name" "sesame-envoy" "release" .) }}
{{- end }}

{{/* Name of an image. */}}
{{- define "sesame.imageName" -}}
{{ printf "%s%s" .repository (ternary (printf "@%s" .digest) (printf ":%s" .tag) (ne .digest "")) }}
{{- end }}

{{/* Image and pull policy of a container. */}}
{{- define "sesame.image" -}}
image: {{ include "sesame.imageName" . | quote }}
{{- with .pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* Placement of Pods. */}}
{{- define "sesame.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* The controller as a subject of bindings. */}}
{{- define "sesame.controllerSubject" -}}
kind: ServiceAccount
name: sesame-controller
namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Address of metrics and the status page. */}}
{{- define "sesame.metricsAddress" -}}
{{ if contains ":" .address }}[{{ .address }}]{{ else }}{{ .address }}{{ end }}:{{ int .port }}
{{- end }}

{{/* Mounts of the controller's container. */}}
{{- define "sesame.controllerMounts" -}}
{{- with .metrics.tlsSecret }}
- {name: metrics-tls, mountPath: /etc/sesame/metrics-tls, readOnly: true}
{{- end }}
{{- with .metrics.tokenSecret }}
- {name: metrics-token, mountPath: /etc/sesame/metrics-token, readOnly: true}
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Volumes of the controller's Pods. */}}
{{- define "sesame.controllerVolumes" -}}
{{- with .metrics.tlsSecret }}
- name: metrics-tls
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- with .metrics.tokenSecret }}
- name: metrics-token
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
