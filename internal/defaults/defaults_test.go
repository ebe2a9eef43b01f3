package defaults

import (
	"reflect"
	"testing"
	"time"
)

type config struct {
	Count, Negative, Given int
	Time, NoDefault        time.Duration
	Text                   string
	Flag                   bool
	List                   []int
	Now                    func() time.Time
	Inner                  struct{ Count, Given int }
	hidden                 int
}

// TestFill fills a Config: what is given, and what has another kind of value, stays.
func TestFill(t *testing.T) {
	t.Parallel()
	standard := config{Count: 1, Negative: 2, Given: 3, Time: 4, Text: "5", Flag: true, List: []int{6}, Now: time.Now, hidden: 7}
	standard.Inner.Count, standard.Inner.Given = 8, 9
	c := config{Negative: -1, Given: 30, NoDefault: -2}
	c.Inner.Given = 90
	Fill(&c, standard)
	want := config{Count: 1, Negative: 2, Given: 30, Time: 4, NoDefault: -2, Text: "5"}
	want.Inner.Count, want.Inner.Given = 8, 90
	if now := c.Now; now == nil {
		t.Error("a function is not filled")
	}
	if c.Now = nil; !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}
