{{- /* What a release is called, in the cluster and in its namespace: two of them have nothing of one name. */ -}}
{{- define "divvy.name" -}}
{{- $own := ternary .Release.Name (printf "%s-divvy" .Release.Name) (contains "divvy" .Release.Name) -}}
{{- printf "%s-node" $own | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- /* Which pods are a release's. */ -}}
{{- define "divvy.labels" -}}
{app.kubernetes.io/name: divvy-node, app.kubernetes.io/instance: {{ .Release.Name }}}
{{- end }}
