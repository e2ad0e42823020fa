package suite

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
)

// summarize prints, for each profile, the number of passed tests, the failed tests, and the unsupported features.
func summarize(to io.Writer, report *confv1.ConformanceReport) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nGateway API %s, %s channel\tpassed\tfailed\tskipped\n",
		report.GatewayAPIVersion, report.GatewayAPIChannel)
	var remarks []string
	for _, profile := range report.ProfileReports {
		line := func(level string, status confv1.Status) {
			count := status.Statistics
			fmt.Fprintf(table, "%s %s\t%d\t%d\t%d\n", profile.Name, level, count.Passed, count.Failed, count.Skipped)
			remarks = remark(remarks, profile.Name, level+" failed", status.FailedTests)
			remarks = remark(remarks, profile.Name, level+" skipped", status.SkippedTests)
		}
		line("core", profile.Core)
		if extended := profile.Extended; extended != nil {
			line("extended", extended.Status)
			remarks = remark(remarks, profile.Name, "features not claimed", extended.UnsupportedFeatures)
		}
	}
	_ = table.Flush()
	fmt.Fprintln(to, strings.Join(remarks, "\n"))
}

func remark(remarks []string, profile, what string, names []string) []string {
	if len(names) == 0 {
		return remarks
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return append(remarks, fmt.Sprintf("%s, %s: %s", profile, what, strings.Join(names, ", ")))
}
