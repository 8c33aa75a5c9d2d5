{{- /* What a release is called, in the cluster and in its namespace: two of them have nothing of one name. */ -}}
{{- define "divvy.name" -}}
{{- $own := ternary .Release.Name (printf "%s-divvy" .Release.Name) (contains "divvy" .Release.Name) -}}
{{- printf "%s-node" $own | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- /* Which pods are a release's. */ -}}
{{- define "divvy.labels" -}}
{app.kubernetes.io/name: divvy-node, app.kubernetes.io/instance: {{ .Release.Name }}}
{{- end }}

{{- /* Under which names it is a driver: that of GPUs, and one for each file of devices. A list in JSON, which is YAML and CEL too. */ -}}
{{- define "divvy.drivers" -}}
{{- $drivers := list "gpu.divvy.dev" -}}
{{- range $name, $file := .Values.devices -}}
{{- $driver := (fromYaml $file).driver | required (printf "devices: %s names no driver" $name) -}}
{{- $drivers = append $drivers $driver -}}
{{- end -}}
{{- toJson $drivers -}}
{{- end }}
