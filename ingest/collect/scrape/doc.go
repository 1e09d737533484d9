// Package scrape is shared by the collectors, in the first hop of the flow, that read Prometheus expositions: it finds the
// targets, asks each in its own time slot, and reads the text. For those that ask a driver on their own machine it runs the
// commands that do. It knows no metric by name, keeps no values, and never takes an answer that broke off for a whole one.
package scrape
