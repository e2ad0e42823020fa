package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mount writes a Pod's volumes below the directory, and returns the local path for each mount path of the container.
func (n *node) mount(ctx context.Context, object *corev1.Pod, directory string) (map[string]string, error) {
	for _, volume := range object.Spec.Volumes {
		files, err := n.volume(ctx, object.Namespace, volume)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Join(directory, volume.Name), 0o700); err != nil {
			return nil, err
		}
		for name, content := range files {
			path := filepath.Join(directory, volume.Name, filepath.Base(name))
			if err := os.WriteFile(path, content, 0o600); err != nil {
				return nil, err
			}
		}
	}
	paths := map[string]string{}
	for _, mount := range object.Spec.Containers[0].VolumeMounts {
		paths[mount.MountPath] = filepath.Join(directory, mount.Name)
	}
	return paths, nil
}

// volume returns the files of a volume by name.
func (n *node) volume(ctx context.Context, namespace string, volume corev1.Volume) (map[string][]byte, error) {
	switch {
	case volume.Secret != nil:
		object := &corev1.Secret{}
		key := client.ObjectKey{Namespace: namespace, Name: volume.Secret.SecretName}
		if err := n.reader.Get(ctx, key, object); err != nil {
			return nil, err
		}
		return choose(object.Data, volume.Secret.Items)
	case volume.ConfigMap != nil:
		object := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: namespace, Name: volume.ConfigMap.Name}
		if err := n.reader.Get(ctx, key, object); err != nil {
			return nil, err
		}
		data := map[string][]byte{}
		for name, text := range object.Data {
			data[name] = []byte(text)
		}
		return choose(data, volume.ConfigMap.Items)
	default:
		return nil, fmt.Errorf("the kind of volume %s is unknown here", volume.Name)
	}
}

// choose returns the listed entries, or all entries if none are listed.
func choose(data map[string][]byte, items []corev1.KeyToPath) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	chosen := map[string][]byte{}
	for _, item := range items {
		content, found := data[item.Key]
		if !found {
			return nil, fmt.Errorf("there is no entry %s", item.Key)
		}
		chosen[item.Path] = content
	}
	return chosen, nil
}
