package traffic

import (
	"fmt"
	"testing"
)

// A statement names thousands of placements with long ids.
func TestStatementsHoldManyPlacements(t *testing.T) {
	s := newStore(t)
	var keys []key
	for i := range 5000 {
		keys = append(keys, key{cluster: "c", job: fmt.Sprintf("namespace/workload-with-a-long-name-%06d", i), attempt: "@1795980000"})
	}
	ctx, err := named(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.Conn.Query(ctx, "SELECT count() FROM placements WHERE "+isNamed)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
}
