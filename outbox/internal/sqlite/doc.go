// Package sqlite keeps an outbox in a SQLite file: WAL, every commit synced. One connection writes;
// up to maxReaders others read. Several processes may have the file open: they take turns writing
// by a lock beside the file, and a sender shows by another that it lives.
//
// Package outbox opens it, and calls it as a sqlstore.Database. DB.Mu is held while a transaction
// writes, and is the outermost lock of the outbox; WriterLock.Mu and idleConns.mu are leaves.
package sqlite
