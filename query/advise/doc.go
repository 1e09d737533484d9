// Package advise says where a job should go: query's placement advisor, after the enriched state has been read and before
// any answer leaves over HTTP. It is pure and in memory: a State is kept up to date by one writer, readers take immutable
// Snapshots of it without a lock, and a Strategy turns a snapshot and an ask into a plan.
//
// It never reads ClickHouse or Kafka, never places, moves or ends a job, never reserves anything, and never looks at the
// clock: time enters with each question. The same snapshot and request give the same bytes.
package advise
