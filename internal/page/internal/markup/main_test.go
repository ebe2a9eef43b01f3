package markup

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	CodeTime = time.Minute
	os.Exit(m.Run())
}
