package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The name of the only node, which runs all pods.
const nodeName = "node"

var errUnknownImage = errors.New("no image that is known here")

type podKey = types.NamespacedName

// node runs pods as processes.
type node struct {
	client client.Client
	// Bypasses the cache, because only individual Secrets and ConfigMaps are needed.
	reader    client.Reader
	network   *network
	directory string
	echo      string

	mutex sync.Mutex
	pods  map[podKey]*pod
}

func (n *node) add(all manager.Manager) error {
	logs, err := newLogServer(n)
	if err != nil {
		return err
	}
	if err := all.Add(logs); err != nil {
		return err
	}
	register := func(ctx context.Context) error { return n.register(ctx, logs.port()) }
	if err := all.Add(manager.RunnableFunc(register)); err != nil {
		return err
	}
	return builder.ControllerManagedBy(all).Named("pods").For(&corev1.Pod{}).Complete(n)
}

// register creates the Node, whose status contains the log server's port. Once the context is canceled, it stops all pods.
func (n *node) register(ctx context.Context, logs int32) error {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if err := n.client.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	before := client.MergeFrom(object.DeepCopy())
	object.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: logs}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if err := n.client.Status().Patch(ctx, object, before); err != nil {
		return err
	}
	<-ctx.Done()
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for _, pod := range n.pods {
		pod.stop()
	}
	return nil
}

func (n *node) pod(key podKey) *pod {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.pods[key]
}

// Reconcile runs a process for as long as the Pod exists, and updates the Pod's status.
func (n *node) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := &corev1.Pod{}
	err := n.client.Get(ctx, request.NamespacedName, object)
	if apierrors.IsNotFound(err) {
		n.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil || object.Spec.NodeName != nodeName {
		return reconcile.Result{}, err
	}
	if object.DeletionTimestamp != nil {
		n.forget(request.NamespacedName)
		now := &client.DeleteOptions{
			GracePeriodSeconds: new(int64),
			Preconditions:      &metav1.Preconditions{UID: &object.UID},
		}
		return reconcile.Result{}, client.IgnoreNotFound(n.client.Delete(ctx, object, now))
	}
	running := n.pod(request.NamespacedName)
	if running == nil || running.uid != object.UID {
		n.forget(request.NamespacedName)
		running, err = n.startPod(ctx, object)
		if errors.Is(err, errUnknownImage) {
			log.FromContext(ctx).Info("the pod stays pending", "why", err.Error())
			return reconcile.Result{}, nil
		}
		if apierrors.IsNotFound(err) {
			// The Secret or ConfigMap of a volume may be created after the Pod.
			return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		n.mutex.Lock()
		n.pods[request.NamespacedName] = running
		n.mutex.Unlock()
	}
	before := object.DeepCopy()
	running.describe(object)
	if equality.Semantic.DeepEqual(before.Status, object.Status) {
		return reconcile.Result{}, nil
	}
	err = n.client.Status().Patch(ctx, object, client.MergeFrom(before))
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

func (n *node) startPod(ctx context.Context, object *corev1.Pod) (*pod, error) {
	if count := len(object.Spec.Containers); count != 1 || len(object.Spec.InitContainers) != 0 {
		return nil, fmt.Errorf("unsupported pod: needs exactly one container and no init containers, has %d containers", count)
	}
	program, err := n.program(object.Spec.Containers[0].Image)
	if err != nil {
		return nil, err
	}
	files := filepath.Join(n.directory, string(object.UID))
	paths, err := n.mount(ctx, object, files)
	if err != nil {
		return nil, err
	}
	environment, err := environment(object, paths)
	if err != nil {
		return nil, err
	}
	return runPod(n.network, object.UID, files, environment, program), nil
}

// program returns the command line that an image stands for.
func (n *node) program(image string) ([]string, error) {
	switch {
	case imageIs(image, "echo-basic"):
		return []string{n.echo}, nil
	case imageIs(image, "coredns"):
		self, err := os.Executable()
		return []string{self, "dns"}, err
	default:
		return nil, fmt.Errorf("%w: %s", errUnknownImage, image)
	}
}

func (n *node) forget(key podKey) {
	n.mutex.Lock()
	pod := n.pods[key]
	delete(n.pods, key)
	n.mutex.Unlock()
	if pod != nil {
		pod.stop()
	}
}
