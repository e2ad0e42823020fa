package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// deployments manages the pods of Deployments directly, without ReplicaSets.
type deployments struct {
	client client.Client
}

func addDeployments(all manager.Manager) error {
	reconciler := &deployments{all.GetClient()}
	return builder.ControllerManagedBy(all).For(&appsv1.Deployment{}).Owns(&corev1.Pod{}).Complete(reconciler)
}

// Reconcile creates missing pods, and deletes unwanted ones.
func (d *deployments) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	deployment := &appsv1.Deployment{}
	err := d.client.Get(ctx, request.NamespacedName, deployment)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	wanted := map[string]*corev1.Pod{}
	if err == nil && deployment.DeletionTimestamp == nil {
		if wanted, err = d.wanted(deployment); err != nil {
			return reconcile.Result{}, err
		}
	}
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.InNamespace(request.Namespace)); err != nil {
		return reconcile.Result{}, err
	}
	for _, pod := range pods.Items {
		owner := metav1.GetControllerOf(&pod)
		if owner == nil || owner.Kind != "Deployment" || owner.Name != request.Name {
			continue
		}
		if _, found := wanted[pod.Name]; found && owner.UID == deployment.UID {
			delete(wanted, pod.Name)
		} else if err := d.client.Delete(ctx, &pod); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
	}
	for _, pod := range wanted {
		if err := d.client.Create(ctx, pod); client.IgnoreAlreadyExists(err) != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// wanted returns a Deployment's pods by name. A name consists of the Deployment's name, a hash of the template, and a hash
// of the pod's number.
func (d *deployments) wanted(deployment *appsv1.Deployment) (map[string]*corev1.Pod, error) {
	template := deployment.Spec.Template
	pods := map[string]*corev1.Pod{}
	for number := range *deployment.Spec.Replicas {
		pod := &corev1.Pod{Spec: *template.Spec.DeepCopy()}
		pod.Namespace = deployment.Namespace
		pod.Name = fmt.Sprintf("%s-%s-%s", deployment.Name, digest(template), digest(number))
		pod.Labels = maps.Clone(template.Labels)
		pod.Annotations = maps.Clone(template.Annotations)
		pod.Spec.NodeName = nodeName
		if err := controllerutil.SetControllerReference(deployment, pod, d.client.Scheme()); err != nil {
			return nil, err
		}
		pods[pod.Name] = pod
	}
	return pods, nil
}

func digest(value any) string {
	hash := fnv.New32a()
	fmt.Fprint(hash, dump.ForHash(value))
	return rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}
