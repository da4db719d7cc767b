"""
The gateway: RocketMQ's own clients, unchanged, on a store of txsaga.

It speaks `apache.rocketmq.v2` over gRPC and keeps no state but the streams of the clients that are connected: what an
end, an acknowledgement or a check needs is in the store or in the id that the client gives back.
"""
