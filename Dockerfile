# One binary, no compiler and no shell tools beyond the base. The engines run in containers of their own.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY enrich enrich
COPY ingest ingest
COPY internal internal
COPY query query
COPY schemas schemas
ARG VERSION=container
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /spillway ./cmd/spillway

FROM debian:12.11-slim
RUN useradd --system --uid 8470 --home-dir /var/lib/spillway --create-home spillway
# Whom an empty ca_file trusts.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /spillway /usr/local/bin/spillway
USER spillway
VOLUME /var/lib/spillway
EXPOSE 8470 8472 8475
ENTRYPOINT ["spillway"]
CMD ["up"]
