package suite

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// What cannot be said with the definitions of the standard channel: HTTPRoutes have no `retry` there. Other features that the
// suite calls experimental need no field of their own, and are served all the same.
var unsaid = []features.FeatureName{
	features.SupportHTTPRouteRetry,
	features.SupportHTTPRouteRetryBackendTimeout,
	features.SupportHTTPRouteRetryConnectionError,
}

// standardFeatures is what the GatewayClass claims, as far as the standard channel can say it.
func standardFeatures(t *testing.T, options suite.ConformanceOptions) []features.FeatureName {
	class := &gatewayv1.GatewayClass{}
	key := client.ObjectKey{Name: options.GatewayClassName}
	require.NoError(t, options.Client.Get(t.Context(), key, class), "the GatewayClass")
	var found []features.FeatureName
	for _, claimed := range class.Status.SupportedFeatures {
		if name := features.FeatureName(claimed.Name); !slices.Contains(unsaid, name) {
			found = append(found, name)
		}
	}
	return found
}
