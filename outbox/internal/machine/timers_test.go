package machine

// What a machine keeps of streams that have nothing to do.

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestAlarmsDoNotPileUp: a stream has one, however often it is idle for a moment or looked at while it waits.
func TestAlarmsDoNotPileUp(t *testing.T) {
	t.Parallel()
	s := newScript(Window{})
	s.line("sequenced A1")
	s.line("opened A")
	s.line("ok A1")
	s.line("stored A1")
	s.line("found B")
	s.line("looked B head")
	s.line("fail B overloaded")
	for i := range 1000 {
		s.now = s.now.Add(time.Millisecond / 2)
		s.m.Tick(s.now)
		name := fmt.Sprint("A", i+2)
		s.line("sequenced " + name)
		s.line("ok " + name)
		s.line("stored " + name)
		s.line("found B")
	}
	if n := len(s.m.Timers); n != 2 {
		t.Errorf("%d alarms of two streams", n)
	}
	if got := s.line("at 1s"); got != "open B rB" {
		t.Errorf("when B is to be tried again: %s", got)
	}
	if got := s.line("at 1500ms"); got != "ack A 1001" {
		t.Errorf("when A has been idle for a second: %s", got)
	}
	s.line("opened B")
	s.line("loaded B")
	if got := s.line("at 10m"); !strings.Contains(got, "close A") || !strings.Contains(got, "close B") {
		t.Errorf("after a long time: %s", got)
	}
	if n := len(s.m.Timers); n != 0 || len(s.m.Streams) != 0 {
		t.Errorf("%d alarms of %d streams", n, len(s.m.Streams))
	}
}

// TestStreamThatMadeRoomIsForgotten: also if its outcomes were stored before.
func TestStreamThatMadeRoomIsForgotten(t *testing.T) {
	t.Parallel()
	s := newScript(Window{Streams: 1})
	s.line("recovered A A1")
	s.line("opened A")
	s.line("ok A1")
	s.line("stored A1")
	s.line("found A")
	s.line("recovered B B1")
	if got := s.line("loaded A"); got != "ack A 1; close A; open B rB" {
		t.Errorf("when A has nothing left to do: %s", got)
	}
	if s.m.Streams["A"] != nil {
		t.Error("A is remembered")
	}
}
