// What a transport may offer beside its codec's interface. NewConn of each codec sets the functions.

package peerconn

// ProgressReporter is implemented by transports that write large batches in pieces. They call the function when a piece was
// written and another follows.
type ProgressReporter interface{ SetOnProgress(wrote func()) }
