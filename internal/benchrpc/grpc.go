package main

// gRPC: a unary call of bytes, without any marshalling.

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// bytesCodec has the messages be []byte.
type bytesCodec struct{}

// Name implements encoding.CodecV2.
func (bytesCodec) Name() string { return "bytes" }

// Marshal implements encoding.CodecV2.
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

const grpcMethod = "/bench.Echo/Echo"

var grpcService = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			b := new([]byte)
			return b, decode(b)
		},
	}},
}

func serveGRPC(ln net.Listener) error {
	s := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}))
	s.RegisterService(&grpcService, nil)
	return s.Serve(ln)
}

type grpcLink struct{ conn *grpc.ClientConn }

func dialGRPC(_ context.Context, address string) (link, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	if err != nil {
		return nil, err
	}
	return &grpcLink{conn}, nil
}

func (l *grpcLink) echo() error {
	var answer []byte
	if err := l.conn.Invoke(context.Background(), grpcMethod, &message, &answer); err != nil {
		return err
	}
	return checked(answer)
}

func (l *grpcLink) close() error { return l.conn.Close() }
