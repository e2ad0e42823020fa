package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// pod is a process with an address. It is restarted if it exits on its own.
type pod struct {
	uid     types.UID
	address string
	start   metav1.Time
	log     *book
	end     context.CancelFunc
	ended   chan struct{}
}

// runPod starts the program. The pod's files are removed when it is stopped.
func runPod(network *network, uid types.UID, files string, environment, program []string) *pod {
	ctx, end := context.WithCancel(context.Background())
	pod := &pod{
		uid:     uid,
		address: network.address(),
		start:   metav1.NewTime(time.Now().Truncate(time.Second)),
		log:     &book{},
		end:     end,
		ended:   make(chan struct{}),
	}
	go func() {
		defer close(pod.ended)
		defer os.RemoveAll(files)
		for ctx.Err() == nil {
			if err := pod.once(ctx, network, environment, program); ctx.Err() == nil {
				log.Log.Error(err, "a pod ended by itself", "address", pod.address, "log", string(pod.log.since(time.Time{})))
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}
	}()
	return pod
}

func (p *pod) once(ctx context.Context, network *network, environment, program []string) error {
	command, err := network.start(p.address, environment, p.log, program...)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = command.Process.Kill() })()
	return command.Wait()
}

// stop kills the process and waits until it has exited.
func (p *pod) stop() {
	p.end()
	<-p.ended
}

// describe sets the status of a running Pod.
func (p *pod) describe(object *corev1.Pod) {
	status := &object.Status
	status.Phase = corev1.PodRunning
	status.HostIP = nodeAddress
	status.HostIPs = []corev1.HostIP{{IP: nodeAddress}}
	status.PodIP = p.address
	status.PodIPs = []corev1.PodIP{{IP: p.address}}
	status.StartTime = &p.start
	status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: p.start,
		})
	}
	container := object.Spec.Containers[0]
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:    container.Name,
		Image:   container.Image,
		Ready:   true,
		Started: new(true),
		State:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: p.start}},
	}}
}

// environment returns the container's environment, with mount paths replaced by local paths.
func environment(object *corev1.Pod, paths map[string]string) ([]string, error) {
	var all []string
	for _, variable := range object.Spec.Containers[0].Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, fmt.Errorf("the source of %s is unknown here", variable.Name)
			}
			switch from.FieldRef.FieldPath {
			case "metadata.name":
				value = object.Name
			case "metadata.namespace":
				value = object.Namespace
			default:
				return nil, fmt.Errorf("%s: field %s is unknown here", variable.Name, from.FieldRef.FieldPath)
			}
		}
		for inside, outside := range paths {
			if rest, found := strings.CutPrefix(value, inside+"/"); found {
				value = outside + "/" + rest
			}
		}
		all = append(all, variable.Name+"="+value)
	}
	return all, nil
}

// imageIs returns true if the last part of an image's name, without the tag, equals name.
func imageIs(image, name string) bool {
	last := image[strings.LastIndex(image, "/")+1:]
	last, _, _ = strings.Cut(last, ":")
	return last == name
}
