// Costs: how many steps of a map an expression takes.

package expr

// StepBytes is about how many bytes a step of a map allocates.
const StepBytes = 32

// Steps returns how many steps it takes to evaluate a tagged expression. Arguments and properties are counted
// where they are evaluated.
func Steps(tag string, a []any) int {
	n := len(a)
	text, _ := TextAt(a, 1)
	switch tag {
	case "bytes":
		return n + len(text)/StepBytes
	case "bigint":
		return n + len(text)/4 // parsing digits is slow
	case "import", "pipeline":
		return n + lengthAt(a, 2)
	case "remap":
		return n + lengthAt(a, 2) + lengthAt(a, 3)
	case "headers":
		return n + headersCost(a[min(1, n):])
	case "request", "response":
		for _, x := range a {
			if init, ok := x.(map[string]any); ok {
				n += len(init) + headersCost([]any{init["headers"]})
			}
		}
	}
	return n
}

func lengthAt(a []any, at int) int {
	if at >= len(a) {
		return 0
	}
	list, _ := a[at].([]any)
	return len(list)
}

func headersCost(a []any) (n int) {
	for _, x := range a {
		pairs, _ := x.([]any)
		for _, x := range pairs {
			pair, _ := x.([]any)
			name, _ := TextAt(pair, 0)
			n += 1 + len(name)/StepBytes
		}
	}
	return n
}
