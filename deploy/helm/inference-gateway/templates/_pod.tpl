{{- /* What every pod of the chart has in common. */ -}}

{{- define "gateway.labels" -}}
app.kubernetes.io/name: inference-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gateway.metadata" -}}
labels:
  {{- include "gateway.labels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "gateway.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gateway.container" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
envFrom:
  {{- range .Values.secrets }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}

{{- define "gateway.settings" -}}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gateway.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.caSecret }}
- {name: ca, mountPath: /etc/inference-gateway/ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "gateway.volumes" -}}
- name: tmp
  emptyDir: {}
{{- with .Values.caSecret }}
- name: ca
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
