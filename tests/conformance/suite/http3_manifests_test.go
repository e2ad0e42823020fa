package suite

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"
)

const (
	baseManifests = "base/manifests.yaml"
	secretName    = "http3"
	// A ListenerSet in this namespace also gets the certificate.
	otherNamespace = "gateway-api-ls-cross-ns"
)

// securedManifests changes HTTP listeners into HTTPS listeners.
type securedManifests struct {
	fs.FS
	secret *corev1.Secret
}

func newSecret(t *testing.T) *corev1.Secret {
	secret := kubernetes.MustCreateSelfSignedCertSecret(t, suite.InfrastructureNamespace, secretName, []string{"*"})
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	return secret
}

func (m securedManifests) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(m.FS, name)
	if err != nil {
		return nil, err
	}
	var documents bytes.Buffer
	add := func(document any) error {
		text, err := yaml.Marshal(document)
		documents.WriteString("---\n")
		documents.Write(text)
		return err
	}
	decoder := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := unstructured.Unstructured{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(object.Object) > 0 {
			err = errors.Join(secureListeners(object.Object), add(object.Object))
		}
		if err != nil {
			return nil, err
		}
	}
	if name == baseManifests {
		err = errors.Join(add(m.secret), add(grant()))
	}
	return documents.Bytes(), err
}

func secureListeners(object map[string]any) error {
	if kind := object["kind"]; kind != "Gateway" && kind != "ListenerSet" {
		return nil
	}
	listeners, _, err := unstructured.NestedSlice(object, "spec", "listeners")
	if err != nil {
		return err
	}
	for _, listener := range listeners {
		if listener, ok := listener.(map[string]any); ok && listener["protocol"] == "HTTP" {
			listener["protocol"] = "HTTPS"
			listener["tls"] = map[string]any{"certificateRefs": []any{map[string]any{
				"kind": "Secret", "name": secretName, "namespace": suite.InfrastructureNamespace,
			}}}
		}
	}
	return unstructured.SetNestedSlice(object, listeners, "spec", "listeners")
}

func grant() map[string]any {
	return map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
		"metadata": map[string]any{"name": secretName, "namespace": suite.InfrastructureNamespace},
		"spec": map[string]any{
			"from": []any{map[string]any{
				"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "namespace": otherNamespace,
			}},
			"to": []any{map[string]any{"group": "", "kind": "Secret", "name": secretName}},
		},
	}
}
