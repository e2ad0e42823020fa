// Package cluster pins what a test cluster is made of; see README.md. It has no code of its own.
package cluster

// The custom resource definitions are read from this module's sources.
import _ "sigs.k8s.io/gateway-api/pkg/consts"
