package page

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	codeTime = time.Minute
	os.Exit(m.Run())
}
