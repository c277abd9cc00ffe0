module http

// From 1.24 on servers listen by MPTCP.
go 1.24
