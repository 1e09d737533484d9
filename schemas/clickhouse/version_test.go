package clickhouse

import (
	"errors"
	"strings"
	"testing"
)

func TestServersThatAreTooOldAreNamed(t *testing.T) {
	for version, want := range map[string]bool{
		"26.3.1.1": true, "26.7.3.1": true, "26.12.1.1": true, "27.1.2.3": true, "26.3.5.10001.altinitystable": true,
		"26.2.9.9": false, "25.12.1.1": false, "24.8.4.13": false, "9.9": false, "": false, "head": false,
	} {
		err := Supported(version)
		if want != (err == nil) || err != nil && (!errors.Is(err, ErrOldServer) || !strings.Contains(err.Error(), "26.3 is the oldest")) {
			t.Errorf("%q: got %v", version, err)
		}
	}
}
