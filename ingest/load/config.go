package load

import (
	"fmt"
	"time"
)

// Config is the `load` block of the configuration.
type Config struct {
	Group          string        `yaml:"group"`           // consumer group; all loaders of one database share it
	Linger         time.Duration `yaml:"linger"`          // shortest time between two inserts of one partition
	Gather         time.Duration `yaml:"gather"`          // the same while a few records a second come
	MaxRows        int           `yaml:"max_rows"`        // rows of one insert
	MaxBytes       int           `yaml:"max_bytes"`       // bytes of records held in memory, all partitions together
	SessionTimeout time.Duration `yaml:"session_timeout"` // a loader silent for so long loses its partitions
	InsertTimeout  time.Duration `yaml:"insert_timeout"`  // of one insert, on the server too
	RetryMin       time.Duration `yaml:"retry_min"`       // first pause after ClickHouse refused
	RetryMax       time.Duration `yaml:"retry_max"`       // longest pause
}

// DefaultConfig loads with little delay on one machine.
func DefaultConfig() Config {
	return Config{
		Group: "spillway-load", Linger: 150 * time.Millisecond, Gather: time.Second, MaxRows: 200_000, MaxBytes: 64 << 20,
		SessionTimeout: 30 * time.Second, InsertTimeout: 10 * time.Second,
		RetryMin: 200 * time.Millisecond, RetryMax: 15 * time.Second,
	}
}

// Validate says what cannot be and what to write instead.
func (c Config) Validate() error {
	switch {
	case c.Group == "":
		return fmt.Errorf("load.group is empty: name the consumer group, for example spillway-load")
	case c.Linger <= 0 || c.Gather < 0 || c.MaxRows <= 0 || c.MaxBytes <= 0 || c.RetryMin <= 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("load.linger, max_rows, max_bytes and retry_min must be positive, gather not negative, retry_max at least retry_min")
	case c.SessionTimeout < 3*time.Second:
		return fmt.Errorf("load.session_timeout is %s: a loader says every second that it lives, give it at least 3s", c.SessionTimeout)
	case c.InsertTimeout < time.Second:
		return fmt.Errorf("load.insert_timeout is %s: give an insert at least 1s", c.InsertTimeout)
	}
	return nil
}
