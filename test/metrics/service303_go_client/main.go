// SPDX-License-Identifier: BSD-3-Clause

// service303_go_client is grpc-go against a Service303: see
// service303_clients_test.py, which says what all these clients do and print.
//
//	service303_go_client HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

const prefix = "/magma.orc8r.Service303/"

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

func main() {
	connection, err := grpc.Dial(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer connection.Close()
	call := func(what, path string, size int, timeout time.Duration, options ...grpc.CallOption) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		request, response := make([]byte, size), []byte{}
		err := connection.Invoke(ctx, path, &request, &response, options...)
		switch s, _ := status.FromError(err); {
		case err == nil:
			fmt.Printf("%s: %d bytes\n", what, len(response))
		case s.Code() == 4:
			fmt.Printf("%s: code 4\n", what)
		default:
			fmt.Printf("%s: code %d, %s\n", what, s.Code(), s.Message())
		}
	}
	const timeLimit = 30 * time.Second
	for _, method := range []string{"GetServiceInfo", "GetMetrics", "SetLogLevel",
		"SetLogVerbosity", "ReloadServiceConfig", "GetOperationalStates"} {
		call(method, prefix+method, 0, timeLimit)
	}
	call("unknown", "/other.Service/Method", 0, timeLimit)
	call("gzip", prefix+"GetMetrics", 1000, timeLimit, grpc.UseCompressor(gzip.Name))
	call("long", prefix+"GetMetrics", 100000, timeLimit)
	call("deadline", prefix+"GetMetrics", 0, 0)
	var running sync.WaitGroup
	for i := 0; i < 40; i++ {
		running.Add(1)
		go func() {
			call("at once", prefix+"GetMetrics", 0, timeLimit)
			running.Done()
		}()
	}
	running.Wait()
}
