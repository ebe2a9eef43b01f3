// Package a2astore keeps the tasks of an A2A server (Agent2Agent, version 1.0, by github.com/a2aproject/a2a-go) in a Mooring session: they outlive
// the server, several servers may share them, and whoever has a ref to the session can follow, search and export them.
//
//	store := a2astore.New(session, a2astore.Config{Authenticator: a2asrv.NewTaskStoreAuthenticator()})
//	handler := a2asrv.NewHandler(executor, a2asrv.WithTaskStore(store), a2asrv.WithCallInterceptors(store.Repeats()))
//
// # What is stored
//
// A task is several values of the session, so that an update costs what has changed of it:
//
//	a2a_task/TASK             the task without its history and artifacts, its user, and how often it has changed
//	a2a_message/TASK/N        message N of its history
//	a2a_artifact/TASK/N       artifact N without its parts
//	a2a_part/TASK/N/M         part M of artifact N
//	a2a_sent/USER/MESSAGE     which task a message of a user went to
//
// Each has its actor, its schema_version (1) and its time, as any value of a session. An update is one atomic batch, which expects the task's value as it was:
// the version of a task is the cursor of that value. What is not JSON in a task, such as an int in its metadata, comes back as JSON has it (float64).
//
// A batch is in the outbox before it is sent. If a call is given up while the server is away, its change may still apply later, and the next one on an earlier
// version gets taskstore.ErrConcurrentModification.
package a2astore
