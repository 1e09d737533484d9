package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// TestABusyTopicIsReadToItsEnd follows a partition that gets a record every few milliseconds. It is never silent, and all
// the same what follows it must learn that it has caught up, or the advisor would have no opinion on a busy cluster.
func TestABusyTopicIsReadToItsEnd(t *testing.T) {
	broker := testenv.Kafka(t)
	if err := kafka.EnsureTopics(t.Context(), broker, kafka.DefaultTopicConfig()); err != nil {
		t.Fatal(err)
	}
	producer := kafka.NewProducer(broker, kafka.Deps{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	defer producer.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	sent := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			now := time.Now().UnixMilli()
			err := producer.Emit(ctx, &event.Source{Cluster: "c1", Source: "slurm", ObservedAtMs: now, GoodAtMs: &now}) // one key: one partition
			if err != nil && ctx.Err() == nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	log := topicLog{broker}
	partitions, err := log.Partitions(ctx, event.TopicSource)
	if err != nil {
		t.Fatal(err)
	}
	var records, busy atomic.Int64 // busy: times that the end was reached of a partition with records
	done := make(chan struct{}, len(partitions))
	for _, id := range partitions {
		go func() {
			defer func() { done <- struct{}{} }()
			own := 0
			_, _ = log.Follow(ctx, event.TopicSource, id, 0, func(int64, []byte) { own++; records.Add(1) }, func() {
				if own > 0 {
					busy.Add(1)
				}
			})
		}()
	}
	testenv.Until(t, "the end of the busy partition is reached again and again", func() bool { return records.Load() > 100 && busy.Load() > 20 })
	stop()
	for range partitions {
		<-done
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
