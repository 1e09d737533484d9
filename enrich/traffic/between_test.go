package traffic

import (
	"context"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
)

// interrupted is a connection on which something happens right before a statement, once.
type interrupted struct {
	driver.Conn
	before string
	do     func()
}

func (c *interrupted) Exec(ctx context.Context, query string, args ...any) error {
	if c.do != nil && strings.Contains(query, c.before) {
		do := c.do
		c.do = nil
		do()
	}
	return c.Conn.Exec(ctx, query, args...)
}

// TestPlacementsThatChangeDuringAPass judges placements anew between the statements of a pass. No counters come afterwards: the
// next pass mends what this one counted otherwise, and only from what the tables say, as after a restart.
func TestPlacementsThatChangeDuringAPass(t *testing.T) {
	const whole, half = "1 00-10 nvlink 100 GB/s over 2400", "1 00-05 nvlink 100 GB/s over 1200"
	for name, test := range map[string]struct {
		before, told, meanwhile []string // the pass; for it; during it
		want                    []string // without the scale-out, which nobody told of
	}{
		"it ended earlier": {
			told: []string{"placement 1 0:00 - n1=0,1,2,3"}, meanwhile: []string{"placement 1 0:00 5:00 n1=0,1,2,3"}, want: []string{half},
		},
		"it is withdrawn": {
			told: []string{"placement 1 0:00 - n1=0,1,2,3"}, meanwhile: []string{"withdrawn 1"}, want: []string{},
		},
		"it began": {
			meanwhile: []string{"placement 1 0:00 5:00 n1=0,1,2,3"}, want: []string{half},
		},
		"it holds other GPUs": {
			told: []string{"placement 1 0:00 - n1=0,1,2,3"}, meanwhile: []string{"placement 1 0:00 - n1=0,1"},
			want: []string{"1 00-10 nvlink 100 GB/s over 1200"},
		},
		"it had not ended after all": {
			before: []string{"placement 1 0:00 - n1=0,1,2,3"}, told: []string{"placement 1 0:00 2:00 n1=0,1,2,3"},
			meanwhile: []string{"placement 1 0:00 5:00 n1=0,1,2,3"}, want: []string{half},
		},
		"it is withdrawn and comes back": {
			before: []string{"placement 1 0:00 - n1=0,1,2,3"}, told: []string{"withdrawn 1"},
			meanwhile: []string{"placement 1 0:00 - n1=0,1,2,3"}, want: []string{whole},
		},
	} {
		for _, statement := range []string{"counters_minute", "job_traffic", "traffic_evidence"} {
			t.Run(name+" before "+statement, func(t *testing.T) {
				s := newStore(t)
				tell := func(lines []string) {
					for _, line := range lines {
						s.apply(t, line)
					}
					s.apply(t, "judged")
				}
				s.apply(t, "gpus n1 0:00 9:00 100e9 1e12")
				if test.before != nil {
					tell(test.before)
					s.once(t)
				}
				s.apply(t, "gpus n1 9:10 10:00 100e9 28.5e12")
				if test.told != nil {
					tell(test.told)
				}
				conn := &interrupted{s.pass.conn, "INSERT INTO " + statement, func() { tell(test.meanwhile) }}
				s.pass.conn = conn
				s.once(t)
				if conn.do != nil {
					if test.told != nil {
						t.Fatal("nothing was interrupted")
					}
					conn.do() // no placement has any evidence yet
				}
				s.renew(t)
				s.once(t)
				got := s.lines(t, trafficLines)
				for i := range got {
					got[i], _, _ = strings.Cut(got[i], " scale-out")
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("traffic (- wanted, + got):\n%s", diff)
				}
				held := s.lines(t, "SELECT toString((valid_from, valid_to, holding)) FROM traffic_evidence FINAL")
				is := s.lines(t, "SELECT toString((valid_from, valid_to, "+holding+")) FROM placements FINAL")
				if diff := cmp.Diff(is, held); diff != "" {
					t.Errorf("the placement as it is (-) and as it was counted (+):\n%s", diff)
				}
			})
		}
	}
}
