//go:build tools

// Package upstream names the modules whose manifests are read, so that `go mod tidy` keeps them.
package upstream

import (
	_ "sigs.k8s.io/gateway-api/conformance/utils/flags"
	_ "sigs.k8s.io/gateway-api/pkg/consts"
)
