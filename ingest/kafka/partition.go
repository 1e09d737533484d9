package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
)

// Partitions lists the partitions of a topic, for who reads them without a group.
func Partitions(ctx context.Context, k engine.Kafka, topic string) ([]*Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, networkLimit)
	defer cancel()
	transport := k.Transport()
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport, Timeout: networkLimit}
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", topic, explained(k, err))
	}
	var out []*Partition
	for _, t := range meta.Topics {
		if t.Error != nil {
			return nil, fmt.Errorf("list the partitions of %s: %w: `spillway up` and `spillway load` make the topics", topic, t.Error)
		}
		for _, p := range t.Partitions {
			out = append(out, &Partition{Topic: topic, ID: p.ID, kafka: k})
		}
	}
	slices.SortFunc(out, func(a, b *Partition) int { return a.ID - b.ID })
	return out, nil
}
