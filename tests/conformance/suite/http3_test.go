package suite

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

const (
	clientCertificates = "listeners with client certificates have no HTTP/3"
	onlyStatuses       = "sends no HTTP request"
)

// Features whose tests cannot run over HTTP/3.
var featuresWithoutHTTP3 = map[features.FeatureName]string{
	features.SupportGRPCRoute:                                  "the suite's gRPC client has no HTTP/3",
	features.SupportMesh:                                       "mesh",
	features.SupportTCPRoute:                                   "TCP",
	features.SupportTLSRoute:                                   "TLS without HTTP",
	features.SupportUDPRoute:                                   "UDP",
	features.SupportHTTPRouteBackendProtocolWebSocket:          "WebSockets stay on HTTP/1.1 and HTTP/2",
	features.SupportGatewayFrontendClientCertificateValidation: clientCertificates,
}

// Other tests that cannot run over HTTP/3.
var testsWithoutHTTP3 = map[string]string{
	"BackendTLSPolicyObservedGenerationBump":              onlyStatuses,
	"BackendTLSPolicyPreserveForeignStatus":               onlyStatuses,
	"GatewayClassObservedGenerationBump":                  onlyStatuses,
	"GatewayInfrastructureMetadata":                       onlyStatuses,
	"GatewayInvalidParametersRef":                         onlyStatuses,
	"GatewayInvalidRouteKind":                             onlyStatuses,
	"GatewayInvalidTLSBackendConfiguration":               onlyStatuses,
	"GatewayInvalidTLSConfiguration":                      onlyStatuses,
	"GatewayListenerUnsupportedProtocol":                  onlyStatuses,
	"GatewayModifyListeners":                              onlyStatuses,
	"GatewayNameMaximumLength":                            onlyStatuses,
	"GatewayObservedGenerationBump":                       onlyStatuses,
	"GatewayOptionalAddressValue":                         onlyStatuses,
	"GatewayPreserveForeignConditions":                    onlyStatuses,
	"GatewaySecretInvalidReferenceGrant":                  onlyStatuses,
	"GatewaySecretMissingReferenceGrant":                  onlyStatuses,
	"GatewaySecretReferenceGrantAllInNamespace":           onlyStatuses,
	"GatewaySecretReferenceGrantSpecific":                 onlyStatuses,
	"GatewayStaticAddresses":                              onlyStatuses,
	"GatewayWithAttachedRoutes":                           onlyStatuses,
	"GatewayWithAttachedRoutesWithPort8080":               onlyStatuses,
	"HTTPRouteDisallowedKind":                             onlyStatuses,
	"HTTPRouteInvalidCrossNamespaceParentRef":             onlyStatuses,
	"HTTPRouteInvalidParentRefNotMatchingListenerPort":    onlyStatuses,
	"HTTPRouteInvalidParentRefNotMatchingSectionName":     onlyStatuses,
	"HTTPRouteInvalidParentRefSectionNameNotMatchingPort": onlyStatuses,
	"HTTPRouteObservedGenerationBump":                     onlyStatuses,
	"HTTPRoutePreserveForeignStatus":                      onlyStatuses,
	"ListenerSetAllowedNamespaceNone":                     onlyStatuses,
	"ListenerSetAllowedNamespaceSame":                     onlyStatuses,
	"ListenerSetAllowedNamespaceSelector":                 onlyStatuses,
	"ListenerSetAllowedRoutesSupportedKinds":              onlyStatuses,
	"ListenerSetDefaultNotAllowed":                        onlyStatuses,
	"ListenerSetHostnameConflict":                         onlyStatuses,
	"ListenerSetProtocolConflict":                         onlyStatuses,
	"ListenerSetReferenceGrant":                           onlyStatuses,
	"ListenerSetRouteStatusScopedToParentRef":             onlyStatuses,
}

// overHTTP3 makes the suite send its HTTP requests over HTTP/3, and returns the tests that do so. The GatewayClass must enable
// HTTP/3. HTTP listeners become HTTPS listeners with the same names, ports and hostnames, so routes, statuses and expectations
// stay the same.
func overHTTP3(
	t *testing.T, options *suite.ConformanceOptions, all []suite.ConformanceTest,
) []suite.ConformanceTest {
	secret := newSecret(t)
	for i, files := range options.ManifestFS {
		options.ManifestFS[i] = securedManifests{FS: files, secret: secret}
	}
	client := newHTTP3Client(options.TimeoutConfig, secret)
	options.RoundTripper = client
	options.ConformanceProfiles = []suite.ConformanceProfileName{suite.GatewayHTTPConformanceProfileName}
	report := options.Hook
	options.Hook = func(t *testing.T, test suite.ConformanceTest, running *suite.ConformanceTestSuite) {
		if !t.Failed() && !t.Skipped() && client.requests(test.ShortName) == 0 {
			t.Errorf("%s sent no request over HTTP/3: add it to testsWithoutHTTP3", test.ShortName)
		}
		report(t, test, running)
	}
	omitted := make(map[string]int)
	all = slices.DeleteFunc(all, func(test suite.ConformanceTest) bool {
		reason := withoutHTTP3(test)
		if reason != "" {
			omitted[reason]++
		}
		if reason != "" && test.ShortName == options.RunTest {
			t.Skipf("%s: %s", test.ShortName, reason)
		}
		return reason != ""
	})
	for _, reason := range slices.Sorted(maps.Keys(omitted)) {
		fmt.Printf("==> not over HTTP/3: %d tests: %s\n", omitted[reason], reason)
	}
	return all
}

func withoutHTTP3(test suite.ConformanceTest) string {
	if reason := testsWithoutHTTP3[test.ShortName]; reason != "" {
		return reason
	}
	for _, feature := range test.Features {
		if reason := featuresWithoutHTTP3[feature]; reason != "" {
			return reason
		}
	}
	return ""
}
