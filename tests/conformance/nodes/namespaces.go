package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// namespaces deletes the objects in namespaces that are being deleted, and then finalizes the namespaces.
type namespaces struct {
	client    client.Client
	discovery *discovery.DiscoveryClient
	objects   metadata.Interface
}

func addNamespaces(all manager.Manager) error {
	found, err := discovery.NewDiscoveryClientForConfig(all.GetConfig())
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(all.GetConfig())
	if err != nil {
		return err
	}
	reconciler := &namespaces{all.GetClient(), found, objects}
	return builder.ControllerManagedBy(all).For(&corev1.Namespace{}).Complete(reconciler)
}

// Reconcile does nothing unless the namespace is being deleted.
func (n *namespaces) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	err := n.client.Get(ctx, request.NamespacedName, namespace)
	if err != nil || namespace.DeletionTimestamp == nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	left, err := n.empty(ctx, namespace.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left {
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	namespace.Spec.Finalizers = nil
	err = n.client.SubResource("finalize").Update(ctx, namespace)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// empty deletes everything in the namespace, and returns true if it contained anything.
func (n *namespaces) empty(ctx context.Context, namespace string) (bool, error) {
	lists, err := n.discovery.ServerPreferredNamespacedResources()
	if err != nil {
		return false, err
	}
	anything := false
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return false, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "delete") || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			objects := n.objects.Resource(version.WithResource(resource.Name)).Namespace(namespace)
			found, err := objects.List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, object := range found.Items {
				anything = true
				err := objects.Delete(ctx, object.Name, metav1.DeleteOptions{})
				if client.IgnoreNotFound(err) != nil {
					return false, err
				}
			}
		}
	}
	return anything, nil
}
