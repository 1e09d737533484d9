package pass

import (
	"testing"

	"github.com/spillway-io/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
