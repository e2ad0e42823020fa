package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// endpointSlices maintains one EndpointSlice for each Service with a selector.
type endpointSlices struct {
	client client.Client
}

func addSlices(all manager.Manager) error {
	reconciler := &endpointSlices{all.GetClient()}
	return builder.ControllerManagedBy(all).
		For(&corev1.Service{}).
		Owns(&discoveryv1.EndpointSlice{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(reconciler.selecting)).
		Complete(reconciler)
}

// selecting returns the Services that select a Pod.
func (s *endpointSlices) selecting(ctx context.Context, pod client.Object) []reconcile.Request {
	var services corev1.ServiceList
	if err := s.client.List(ctx, &services, client.InNamespace(pod.GetNamespace())); err != nil {
		return nil
	}
	var found []reconcile.Request
	for _, service := range services.Items {
		selector := service.Spec.Selector
		if len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(pod.GetLabels())) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&service)})
		}
	}
	return found
}

// Reconcile writes the Service's slice, or deletes the slice if the Service is gone.
func (s *endpointSlices) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	slice.Namespace, slice.Name = request.Namespace, request.Name+"-pods"
	service := &corev1.Service{}
	err := s.client.Get(ctx, request.NamespacedName, service)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil || len(service.Spec.Selector) == 0 {
		return reconcile.Result{}, client.IgnoreNotFound(s.client.Delete(ctx, slice))
	}
	var pods corev1.PodList
	of := client.MatchingLabels(service.Spec.Selector)
	if err := s.client.List(ctx, &pods, client.InNamespace(request.Namespace), of); err != nil {
		return reconcile.Result{}, err
	}
	_, err = controllerutil.CreateOrUpdate(ctx, s.client, slice, func() error {
		slice.Labels = map[string]string{
			discoveryv1.LabelServiceName: service.Name,
			discoveryv1.LabelManagedBy:   "nodes",
		}
		if service.Spec.ClusterIP == corev1.ClusterIPNone {
			slice.Labels[corev1.IsHeadlessService] = ""
		}
		slice.Ports = ports(service, pods.Items)
		slice.Endpoints = endpoints(pods.Items)
		return controllerutil.SetControllerReference(service, slice, s.client.Scheme())
	})
	return reconcile.Result{}, err
}

func ports(service *corev1.Service, pods []corev1.Pod) []discoveryv1.EndpointPort {
	var all []discoveryv1.EndpointPort
	for _, port := range service.Spec.Ports {
		number, found := target(port, pods)
		if found {
			all = append(all, discoveryv1.EndpointPort{
				Name: &port.Name, Protocol: &port.Protocol, Port: &number, AppProtocol: port.AppProtocol,
			})
		}
	}
	return all
}

// target returns a Service port's target port. All pods are assumed to give a named port the same number.
func target(port corev1.ServicePort, pods []corev1.Pod) (int32, bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, named := range container.Ports {
				if named.Name == port.TargetPort.StrVal {
					return named.ContainerPort, true
				}
			}
		}
	}
	return 0, false
}

func endpoints(pods []corev1.Pod) []discoveryv1.Endpoint {
	all := []discoveryv1.Endpoint{}
	for _, pod := range pods {
		if pod.Status.PodIP == "" {
			continue
		}
		going := pod.DeletionTimestamp != nil
		serving := false
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				serving = condition.Status == corev1.ConditionTrue
			}
		}
		all = append(all, discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIP},
			NodeName:  &pod.Spec.NodeName,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Conditions: discoveryv1.EndpointConditions{
				Ready: new(serving && !going), Serving: &serving, Terminating: &going,
			},
		})
	}
	return all
}
