#!/bin/sh
# Creates the tables, and maps the cells. It can run again.
set -eu

api=--config-file=/etc/cellsched/api.conf
cellsched-manage $api api_db sync
cellsched-manage $api claims_db sync
cellsched-manage $api cell_v2 map_cell0
cellsched-manage $api db sync
for cell in cell1 cell2 cell3; do
    file=--config-file=/etc/cellsched/$cell.conf
    cellsched-manage $file db sync
    # 2: the cell exists.
    cellsched-manage $api $file cell_v2 create_cell --name $cell || [ $? = 2 ]
done
