// Package suite runs the Gateway API's unmodified conformance suite. The features to test are the ones that the
// GatewayClass reports.
package suite

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"
)

// All profiles for gateways. Sesame is not a mesh, so the mesh profiles do not apply.
var profiles = []suite.ConformanceProfileName{
	suite.GatewayHTTPConformanceProfileName,
	suite.GatewayGRPCConformanceProfileName,
	suite.GatewayTLSConformanceProfileName,
	suite.GatewayTCPConformanceProfileName,
	suite.GatewayUDPConformanceProfileName,
}

var (
	seed     = flag.Int64("shuffle", 0, "Shuffle the tests with this seed; 0 keeps the suite's order")
	useHTTP3 = flag.Bool("http3", false, "Send HTTP requests over HTTP/3; leaves out tests that have none")
)

func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	if len(options.ConformanceProfiles) == 0 {
		options.ConformanceProfiles = profiles
	}
	implementation := &options.Implementation
	implementation.Organization = "projectsesame"
	implementation.Project = "sesame"
	implementation.URL = "https://projectsesame.io"
	implementation.Contact = []string{"CONTRIBUTING.md in the source tree"}
	options.Hook = func(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
		switch {
		case t.Failed():
			fmt.Printf("==> failed: %s\n", test.ShortName)
		case !t.Skipped():
			fmt.Printf("==> passed: %s\n", test.ShortName)
		}
	}
	all := slices.Clone(tests.ConformanceTests)
	if *useHTTP3 {
		all = overHTTP3(t, &options, all)
	}
	running, err := suite.NewConformanceTestSuite(options)
	require.NoError(t, err, "the suite")
	// Runs after all tests, including parallel ones.
	t.Cleanup(func() {
		report, err := running.Report()
		require.NoError(t, err, "the report")
		// The suite reports profiles in no fixed order.
		slices.SortFunc(report.ProfileReports, func(a, b confv1.ProfileReport) int {
			return strings.Compare(a.Name, b.Name)
		})
		summarize(os.Stdout, report)
		if options.ReportOutputPath == "" {
			return
		}
		text, err := yaml.Marshal(report)
		require.NoError(t, err, "the report")
		require.NoError(t, os.WriteFile(options.ReportOutputPath, text, 0o644))
	})
	if *seed != 0 {
		rand.New(rand.NewSource(*seed)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	running.Setup(t, all)
	require.NoError(t, running.Run(t, all))
}
