package figure

import (
	"math"
	"testing"
)

func TestNumbersAreWrittenInOneWay(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Count(36312):                 "36,312",
		Count(int64(-1234567)):       "-1,234,567",
		Count(0):                     "0",
		Of(1, "grant"):               "1 grant",
		Of(36312, "grant"):           "36,312 grants",
		Of(int64(2), "access"):       "2 accesses",
		Of(0, "query"):               "0 queries",
		Number(0):                    "0",
		Number(5):                    "5",
		Number(790.94):               "790.9",
		Number(36312.4):              "36,312",
		Number(-36312.4):             "-36,312",
		Number(1.5):                  "1.50",
		Number(0.1234):               "0.123",
		Number(-0.5):                 "-0.500",
		Number(0.000123):             "0.00012",
		Number(math.Inf(1)):          "not known",
		Number(math.NaN()):           "not known",
		Exact(36312.25):              "36,312.25",
		Exact(0.125):                 "0.125",
		Exact(-0.125):                "-0.125",
		Exact(3):                     "3",
		Exact(1e18):                  "1,000,000,000,000,000,000",
		Duration(0):                  "0 ms",
		Duration(790_900_000):        "790.9 ms",
		Duration(1_500_000_000):      "1.50 s",
		Duration(250_000):            "250 µs",
		Duration(-4_000_000):         "-4 ms",
		Duration(36_312_000_000_000): "36,312 s",
		Milli(14.83):                 "14.8 ms",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
