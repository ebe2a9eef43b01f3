//go:build unix

package agentproc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// actVar makes the test's own program an agent, or the starter of one.
const actVar = "MOORING_AGENTPROC_ACT"

func TestMain(m *testing.M) {
	if act := os.Getenv(actVar); act != "" {
		play(act)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play is the agent: each word of act is something that it does.
func play(act string) {
	for word := range strings.FieldsSeq(act) {
		word, arg, _ := strings.Cut(word, ":")
		switch word {
		case "deaf": // to signals and to the end of its standard input
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		case "echo":
			in := bufio.NewScanner(os.Stdin)
			in.Buffer(nil, 1<<20)
			for in.Scan() {
				fmt.Println(in.Text())
			}
		case "say":
			fmt.Println(arg)
		case "part": // a line that is cut off
			fmt.Print(arg)
		case "complain":
			for i := range 2000 {
				fmt.Fprintf(os.Stderr, "complaint %d\n", i)
			}
		case "long":
			fmt.Println(strings.Repeat("x", 5000))
		case "flood":
			for {
				fmt.Println(strings.Repeat("y", 1000))
			}
		case "fork", "escape", "bare": // a child that does arg for ever; it prints its pid
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), actVar+"=deaf "+arg+" rest")
			child.Stdout = os.Stdout
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: word == "escape"}
			if word == "bare" {
				child.Env = []string{actVar + "=deaf rest"}
			}
			if err := child.Start(); err != nil {
				fmt.Println(err)
			}
			fmt.Println(child.Process.Pid)
		case "rest":
			for {
				time.Sleep(time.Hour)
			}
		case "runner": // starts an agent that does arg, prints its identity, and is killed
			startAndDie(strings.ReplaceAll(arg, ",", " "))
		case "exit":
			os.Exit(7)
		}
	}
}
