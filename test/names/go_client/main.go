// SPDX-License-Identifier: BSD-3-Clause

// go_client is grpc-go as a service uses it, one channel for each cloud
// service, and Go's own TLS:
//
//	go_client grpc HOST:PORT AUTHORITY=BYTES...
//	go_client tls HOST:PORT SERVER_NAME=BYTES...
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

func callGrpc(target, authority string, size int) error {
	connection, err := grpc.Dial(target, grpc.WithAuthority(authority),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		return err
	}
	defer connection.Close()
	for i := 0; i < 2; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		request, response := make([]byte, size), []byte{}
		err = connection.Invoke(ctx, "/test.Names/Echo", &request, &response)
		cancel()
		if err != nil {
			return err
		}
		if len(response) != size {
			return fmt.Errorf("%d bytes came back", len(response))
		}
	}
	return nil
}

func callTLS(target, name string, size int) error {
	connection, err := tls.Dial("tcp", target,
		&tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer connection.Close()
	request := append(bytes.Repeat([]byte("x"), size), '\n')
	if _, err = connection.Write(request); err != nil {
		return err
	}
	response, err := io.ReadAll(connection)
	if err == nil && !bytes.Equal(response, request) {
		err = fmt.Errorf("%d bytes came back", len(response))
	}
	return err
}

func main() {
	call := callGrpc
	if os.Args[1] == "tls" {
		call = callTLS
	}
	for _, argument := range os.Args[3:] {
		i := strings.LastIndex(argument, "=")
		size, err := strconv.Atoi(argument[i+1:])
		if err == nil {
			err = call(os.Args[2], argument[:i], size)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "go_client:", argument, err)
			os.Exit(1)
		}
	}
}
