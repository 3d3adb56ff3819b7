{{/* What the origin and a worker have in common. Each takes a dict: root, role ("origin" or "worker"), and node, its values. */}}

{{- define "weightcast.labels" -}}
app.kubernetes.io/name: weightcast
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{/* Every container runs as the image's user: the daemon's socket and files are for that one. */}}
{{- define "weightcast.podSecurity" -}}
runAsUser: 7400
runAsGroup: 7400
fsGroup: 7400
runAsNonRoot: true
{{- end }}

{{- define "weightcast.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "weightcast.mounts" -}}
- {name: data, mountPath: /var/lib/weightcast, subPath: state}
- {name: memory, mountPath: /dev/shm}
{{- end }}

{{/* Directories of a new volume belong to root, and those of a host always do. */}}
{{- define "weightcast.own" -}}
- name: own
  image: {{ .root.Values.image }}
  imagePullPolicy: {{ .root.Values.imagePullPolicy }}
  command: [install, --directory, --owner=7400, --group=7400, --mode=700, /data/state, /data/keys]
  securityContext:
    runAsUser: 0
    runAsNonRoot: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL], add: [CHOWN, FOWNER, DAC_OVERRIDE]}
  volumeMounts:
    - {name: data, mountPath: /data}
{{- end }}

{{/* A shell command makes the node's keys, unless it has some. */}}
{{- define "weightcast.keys" -}}
- name: keys
  image: {{ .root.Values.image }}
  imagePullPolicy: {{ .root.Values.imagePullPolicy }}
  command: [sh, -ec, {{ .script | quote }}]
  env:
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  securityContext: {{- include "weightcast.security" . | nindent 4 }}
  volumeMounts:
    - {name: data, mountPath: /etc/weightcast, subPath: keys}
    {{- if eq .role "worker" }}
    - {name: join, mountPath: /run/join, readOnly: true}
    {{- else }}
    - {name: given, mountPath: /run/keys, readOnly: true}
    {{- end }}
    {{- if .root.Values.metrics.enabled }}
    - {name: http, mountPath: /run/http, readOnly: true}
    {{- end }}
{{- end }}

{{- define "weightcast.daemon" -}}
- name: daemon
  image: {{ .root.Values.image }}
  imagePullPolicy: {{ .root.Values.imagePullPolicy }}
  args:
    {{- range .args }}
    - {{ . | quote }}
    {{- end }}
    {{- if .root.Values.metrics.enabled }}
    - --http=0.0.0.0:7401
    - --http-token=/etc/weightcast/http-token
    {{- end }}
    {{- range .node.args }}
    - {{ . | quote }}
    {{- end }}
  ports:
    - {name: nodes, containerPort: 7400}
    {{- if .root.Values.metrics.enabled }}
    - {name: http, containerPort: 7401}
    {{- end }}
  # There is no liveness probe: a worker whose origin is away still serves its version, and a restart would mend nothing.
  readinessProbe:
    exec: {command: [weightcast, ready, --timeout, "5"]}
    timeoutSeconds: 10
    periodSeconds: 10
  resources: {{- toYaml .node.resources | nindent 4 }}
  securityContext: {{- include "weightcast.security" . | nindent 4 }}
  volumeMounts:
    {{- include "weightcast.mounts" . | nindent 4 }}
    - {name: data, mountPath: /etc/weightcast, subPath: keys}
{{- end }}

{{/* A trainer or an engine. Its own env and mounts come after ours. */}}
{{- define "weightcast.beside" -}}
- name: {{ .name }}
  {{- omit .container "env" "volumeMounts" | toYaml | nindent 2 }}
  env:
    - {name: WEIGHTCAST_STATE, value: /var/lib/weightcast}
    {{- with .container.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumeMounts:
    {{- include "weightcast.mounts" . | nindent 4 }}
    {{- with .container.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "weightcast.volumes" -}}
- name: memory
  emptyDir: {medium: Memory, sizeLimit: {{ .node.memory }}}
{{- if .root.Values.metrics.enabled }}
- name: http
  secret: {secretName: {{ .root.Release.Name }}-http}
{{- end }}
{{- end }}

{{/* The origin counts a token's uses, and writes down whom it enrols: so it has files of its own, and the Secret's are the first ones. */}}
{{- define "weightcast.originKeys" -}}
for file in origin.pem enrolment.pem tokens.json issued.json revoked.pem; do
  test -s "/etc/weightcast/$file" || ! test -s "/run/keys/$file" || install -m 600 "/run/keys/$file" "/etc/weightcast/$file"
done
test ! -e /etc/weightcast/authority.pem ||
  echo "authority.pem lies in the origin's volume: keep it elsewhere, and remove it here" >&2
test -s /etc/weightcast/origin.pem || {
  echo "no keys: make the Secret {{ .root.Release.Name }}-keys with origin.pem, enrolment.pem, tokens.json and issued.json of 'weightcast keys'" >&2
  exit 1
}
{{- end }}

{{- define "weightcast.httpToken" -}}
{{ if .root.Values.metrics.enabled }}install -m 600 /run/http/token /etc/weightcast/http-token; {{ end }}
{{- end }}
