{{/* The name of everything that the release has. */}}
{{- define "countmill.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Labels of an object: (list $ ROLE). */}}
{{- define "countmill.labels" -}}
{{ include "countmill.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{- define "countmill.selector" -}}
app.kubernetes.io/name: countmill
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "countmill.account" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "countmill.name" .) "default") -}}
{{- end }}

{{/* The roles that the release runs, with spaces between them. */}}
{{- define "countmill.roles" -}}
{{- ne .Values.mode "roles" | ternary "up" (.Values.indexer.enabled | ternary "publisher aggregator reader indexer" "publisher aggregator reader") -}}
{{- end }}

{{/* The mistakes that a template would hide. */}}
{{- define "countmill.check" -}}
{{- if not (has .Values.mode (list "up" "shared" "roles")) }}{{ fail (printf "mode is %q; use up, shared or roles" .Values.mode) }}{{ end }}
{{- if and (not .Values.tokens.secret) (not .Values.tokens.insecure) }}{{ fail "set tokens.secret, or tokens.insecure=true to let anybody call" }}{{ end }}
{{- if eq .Values.mode "roles" }}
{{- if not (and .Values.bus (or .Values.store .Values.storeSecret)) }}{{ fail "mode roles needs bus and store" }}{{ end }}
{{- end }}
{{- if and (eq .Values.mode "shared") (not (or .Values.store .Values.storeSecret)) }}{{ fail "mode shared needs store, or storeSecret" }}{{ end }}
{{- with .Values.up.backups.root }}
{{- if ne $.Values.mode "up" }}{{ fail "up.backups.root needs mode up: of a store apart there are no backups" }}{{ end }}
{{- if not (or (eq . "/backups") (hasPrefix "/backups/" .) (contains "://" .)) }}{{ fail (printf "up.backups.root is %q; use /backups, or a URL of a bucket" .) }}{{ end }}
{{- if and (not (contains "://" .)) (not $.Values.up.backups.volume) }}{{ fail "up.backups.root is a directory: name its volume in up.backups.volume" }}{{ end }}
{{- end }}
{{- if .Values.keda.enabled }}
{{- if ne .Values.mode "roles" }}{{ fail "keda.enabled needs mode roles: up is one process" }}{{ end }}
{{- if lt (int .Values.keda.minReplicas) 1 }}{{ fail "keda.minReplicas must be 1 or more: without an aggregator nobody knows the lag" }}{{ end }}
{{- if not .Values.keda.prometheus }}{{ fail "keda.enabled needs keda.prometheus, a URL" }}{{ end }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.tokens.secret (not .Values.serviceMonitor.tokenSecret) }}{{ fail "serviceMonitor.enabled needs serviceMonitor.tokenSecret if tokens.secret is set" }}{{ end }}
{{- end }}

{{/* The pod of a role: (list $ ROLE RESOURCES). */}}
{{- define "countmill.pod" -}}
{{- $ := index . 0 }}{{ $role := index . 1 }}{{ $serves := not (has $role (list "aggregator" "indexer")) }}
metadata:
  labels: {{- include "countmill.labels" (list $ $role) | nindent 4 }}
spec:
  serviceAccountName: {{ include "countmill.account" $ | quote }}
  {{- if eq $role "up" }}
  automountServiceAccountToken: false
  {{- end }}
  terminationGracePeriodSeconds: {{ add ($serves | ternary (int $.Values.preStopSeconds) 0) (int $.Values.shutdownSeconds) 5 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: countmill
      image: "{{ $.Values.image.repository }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}"
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      args:
        {{- if eq $role "indexer" }}
        - index
        - work
        {{- else }}
        - {{ $role }}
        {{- end }}
        - --listen=0.0.0.0:8080
        - --log-format=json
        - --shutdown-timeout={{ int $.Values.shutdownSeconds }}s
        {{- if $.Values.tokens.secret }}
        - --tokens=/etc/countmill/tokens
        {{- else }}
        - --insecure
        {{- end }}
        {{- if eq $.Values.mode "up" }}
        - --data=/data/countmill-data
        {{- with $.Values.up.backups }}{{ if .root }}
        - {{ printf "--backup-root=%s" .root | quote }}
        - {{ printf "--backup-every=%s" .every | quote }}
        - {{ printf "--backup-keep=%s" .keep | quote }}
        {{- end }}{{ end }}
        {{- end }}
        {{- if has $role (list "publisher" "aggregator") }}
        - {{ printf "--bus=%s" $.Values.bus | quote }}
        {{- end }}
        {{- if and $.Values.store (or (has $role (list "aggregator" "reader" "indexer")) (eq $.Values.mode "shared")) }}
        - {{ printf "--store=%s" $.Values.store | quote }}
        {{- end }}
        {{- if and (eq $role "reader") $.Values.cache }}
        - {{ printf "--cache=%s" $.Values.cache | quote }}
        {{- end }}
      {{- if or $.Values.env $.Values.storeSecret }}
      env:
        {{- range $name, $value := $.Values.env }}
        - {name: {{ $name | quote }}, value: {{ $value | quote }}}
        {{- end }}
        {{- if and $.Values.storeSecret (ne $.Values.mode "up") (ne $role "publisher") }}
        - {name: COUNTMILL_STORE, valueFrom: {secretKeyRef: {name: {{ $.Values.storeSecret | quote }}, key: url}}}
        {{- end }}
      {{- end }}
      ports: [{name: http, containerPort: 8080}]
      # A directory may have a long log to read before it answers.
      startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 2, failureThreshold: 450}
      readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: 5}
      # Not /readyz: a restart would not bring a store back.
      livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
      {{- if $serves }}
      lifecycle: {preStop: {sleep: {seconds: {{ int $.Values.preStopSeconds }}}}}
      {{- end }}
      resources: {{- toYaml (index . 2) | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        {{- if eq $.Values.mode "up" }}
        - {name: data, mountPath: /data}
        {{- with $.Values.up.backups.volume }}
        - {name: backups, mountPath: /backups}
        {{- end }}
        {{- end }}
        {{- if $.Values.tokens.secret }}
        # The directory, not the file: then a changed Secret arrives.
        - {name: tokens, mountPath: /etc/countmill, readOnly: true}
        {{- end }}
        {{- if and $.Values.busSecret (has $role (list "publisher" "aggregator")) }}
        - {name: bus, mountPath: /etc/bus, readOnly: true}
        {{- end }}
  volumes:
    {{- if $.Values.tokens.secret }}
    - name: tokens
      secret: {secretName: {{ $.Values.tokens.secret | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if and $.Values.busSecret (has $role (list "publisher" "aggregator")) }}
    - name: bus
      secret: {secretName: {{ $.Values.busSecret | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if and (eq $.Values.mode "up") $.Values.up.backups.volume }}
    - name: backups
      {{- toYaml $.Values.up.backups.volume | nindent 6 }}
    {{- end }}
{{- end }}
