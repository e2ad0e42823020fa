// Command nodes replaces the nodes and controllers of a cluster. It creates Pods for Deployments, processes for Pods, and
// EndpointSlices for Services, and deletes objects whose owner is gone. It supports only what the conformance suite needs:
// each Pod has one container, and an image stands for one of a few known programs.
//
// Run it in a separate network namespace, because it creates a bridge and adds addresses.
package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 2 && os.Args[1] == "pod":
		err = becomePod(os.Args[2], os.Args[3:])
	case len(os.Args) > 1 && os.Args[1] == "dns":
		err = answerNames()
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodes:", err)
		os.Exit(1)
	}
}

func run() error {
	echo := flag.String("echo", "", "the suite's echo server")
	directory := flag.String("directory", "", "for the files of volumes")
	flag.Parse()
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	access, err := config.GetConfig()
	if err != nil {
		return err
	}
	access.WarningHandler = rest.NoWarnings{}
	all, err := manager.New(access, manager.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	network, err := newNetwork()
	if err != nil {
		return fmt.Errorf("the network of pods: %w", err)
	}
	node := &node{
		client:    all.GetClient(),
		reader:    all.GetAPIReader(),
		network:   network,
		directory: *directory,
		echo:      *echo,
		pods:      map[podKey]*pod{},
	}
	for what, add := range map[string]func(manager.Manager) error{
		"node":        node.add,
		"deployments": addDeployments,
		"slices":      addSlices,
		"namespaces":  addNamespaces,
	} {
		if err := add(all); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return all.Start(signals.SetupSignalHandler())
}
