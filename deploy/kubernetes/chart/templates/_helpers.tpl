{{- define "listwright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimAll "-." }}
{{- end }}

{{- define "listwright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimAll "-." }}
{{- else }}
{{- $name := include "listwright.name" . }}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 53 | trimAll "-." }}
{{- end }}
{{- end }}

{{- /* A Service has a stricter name than the others: a letter first, and no dots. */ -}}
{{- define "listwright.service" -}}
{{- $name := include "listwright.fullname" . | replace "." "-" }}
{{- regexMatch "^[a-z]" $name | ternary $name (printf "svc-%s" $name) }}
{{- end }}

{{- define "listwright.selector" -}}
app.kubernetes.io/name: {{ include "listwright.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "listwright.labels" -}}
{{ include "listwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "listwright.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- /* Seconds from the begin of the end to SIGKILL. */ -}}
{{- define "listwright.grace" -}}
{{- add .Values.shutdown.preStopS .Values.shutdown.drainS 25 5 }}
{{- end }}

{{- /* A number as it was written: Helm reads all as floating point, and prints a large one with an exponent. */ -}}
{{- define "listwright.text" -}}
{{- if and (kindIs "float64" .) (eq . (float64 (int64 .))) }}
{{- int64 . | toString }}
{{- else }}
{{- toString . }}
{{- end }}
{{- end }}

{{- /* The environment that is not the operator's choice. */ -}}
{{- define "listwright.env" -}}
- {name: LISTWRIGHT_HOST, value: {{ .Values.host | quote }}}
- {name: LISTWRIGHT_PORT, value: "8000"}
- {name: LISTWRIGHT_WORKERS, value: {{ include "listwright.text" .Values.workers | quote }}}
- {name: LISTWRIGHT_DRAIN_S, value: {{ include "listwright.text" .Values.shutdown.drainS | quote }}}
{{- if eq .Values.bundle.from "claim" }}
- {name: LISTWRIGHT_MODELS, value: /bundles}
{{- else if eq .Values.bundle.from "url" }}
- {name: LISTWRIGHT_MODELS, value: {{ .Values.bundle.url | quote }}}
- {name: LISTWRIGHT_CACHE, value: /cache}
{{- else }}
- {name: LISTWRIGHT_BUNDLE, value: {{ get (dict "inside" .Values.bundle.path "image" "/volume/bundle" "copy" "/bundle") .Values.bundle.from | quote }}}
{{- end }}
{{- if .Values.keys.secret }}
- {name: LISTWRIGHT_KEYS_FILE, value: {{ printf "/etc/listwright/keys/%s" .Values.keys.key | quote }}}
{{- end }}
{{- if .Values.admin.secret }}
- name: LISTWRIGHT_ADMIN_KEY
  valueFrom:
    secretKeyRef: {name: {{ .Values.admin.secret | quote }}, key: {{ .Values.admin.key | quote }}}
{{- end }}
{{- if .Values.tls.secret }}
- {name: LISTWRIGHT_TLS_CERT, value: /etc/listwright/tls/tls.crt}
- {name: LISTWRIGHT_TLS_KEY, value: /etc/listwright/tls/tls.key}
{{- end }}
{{- if .Values.logs.served }}
- {name: LISTWRIGHT_SERVED_LOG, value: /logs/served}
{{- end }}
{{- if .Values.logs.events }}
- {name: LISTWRIGHT_EVENTS_LOG, value: /logs/events}
{{- end }}
{{- if .Values.logs.salt.secret }}
- name: LISTWRIGHT_UNIT_SALT
  valueFrom:
    secretKeyRef: {name: {{ .Values.logs.salt.secret | quote }}, key: {{ .Values.logs.salt.key | quote }}}
{{- end }}
{{- if .Values.experiments }}
- {name: LISTWRIGHT_EXPERIMENTS, value: /etc/listwright/experiments/experiments.toml}
{{- end }}
{{- end }}

{{- define "listwright.logs" -}}
{{- if or .Values.logs.served .Values.logs.events }}yes{{ end }}
{{- end }}

{{- define "listwright.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.tls.secret }}
  scheme: HTTPS
  {{- end }}
{{ toYaml .timing }}
{{- end }}

{{- define "listwright.securityContext" -}}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
