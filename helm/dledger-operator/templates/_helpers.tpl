{{/* The chart's name, as a label value. */}}
{{- define "dledger-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of every object: the release's name, then the chart's unless the release's name contains it. */}}
{{- define "dledger-operator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- include "dledger-operator.objectName" .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- include "dledger-operator.objectName" .Release.Name }}
{{- else }}
{{- include "dledger-operator.objectName" (printf "%s-%s" .Release.Name $name) }}
{{- end }}
{{- end }}

{{/* A name that a Service may have: a release's name may contain dots, and begin with a digit. */}}
{{- define "dledger-operator.objectName" -}}
{{- $name := replace "." "-" . }}
{{- regexReplaceAll "-+$" (trunc 52 (regexMatch "^[0-9]" $name | ternary (printf "r%s" $name) $name)) "" }}
{{- end }}

{{/* The name of cluster-wide objects. The namespace keeps releases in several namespaces apart. */}}
{{- define "dledger-operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "dledger-operator.fullname" .) }}
{{- end }}

{{- define "dledger-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "dledger-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name must be set when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Labels for selectors: they never change. */}}
{{- define "dledger-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dledger-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "dledger-operator.labels" -}}
{{ include "dledger-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dledger
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end }}

{{/* A complete image reference. Call with (list $ .Values.nodeImage). */}}
{{- define "dledger-operator.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- with $root.Values.imageRegistry }}{{ . | trimSuffix "/" }}/{{ end }}
{{- $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{/* The role of an audit that makes the pods of its executors. */}}
{{- define "dledger-operator.auditDriver" -}}
{{- include "dledger-operator.clusterName" . }}:audit-driver
{{- end }}

{{- define "dledger-operator.auditDriverKind" -}}
{{- if .Values.watchNamespaces }}Role{{ else }}ClusterRole{{ end }}
{{- end }}

{{/* The permissions of an audit that makes the pods of its executors. */}}
{{- define "dledger-operator.auditDriverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
{{- end }}

{{/* The operator's permissions, for the Role of one namespace or for a ClusterRole. */}}
{{- define "dledger-operator.rules" -}}
- apiGroups: [dledger.io]
  resources: [dledgergroups, dledgeraudits, dledgerswitchovers, dledgerreplaces]
  verbs: [get, list, watch]
- apiGroups: [dledger.io]
  resources: [dledgerswitchovers, dledgerreplaces]
  verbs: [delete]
- apiGroups: [dledger.io]
  resources: [dledgeraudits]
  verbs: [create, delete]
- apiGroups: [dledger.io]
  resources: [dledgergroups/status, dledgeraudits/status, dledgerswitchovers/status, dledgerreplaces/status]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch]
# No rule can limit secrets to a label. So all groups of a namespace share one Secret of a fixed
# name, and the operator can read no other.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [admin-tokens.dledger.io]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch]
{{- if .Values.auditExecutors.enabled }}
# For audits with executors. `bind` makes this one role an exception from the rule that nobody grants
# what he does not have: the operator's rules let it create no pods themselves. Its StatefulSets and
# Jobs make pods of any template all the same.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [{{ include "dledger-operator.auditDriverKind" . | lower }}s]
  resourceNames: [{{ include "dledger-operator.auditDriver" . | quote }}]
  verbs: [bind]
{{- end }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [groups.dledger.io]
  verbs: [get, patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}
